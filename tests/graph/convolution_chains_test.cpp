// What elementwise operations do to a convolution's result is computed with it, where nothing else reads what lies between.

#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/operator_checks.h"

namespace frit::convolution_chains_test {
namespace {

using graph::NodeKind;
using Names = std::vector<std::string>;

const std::string chain = "chain conv2d";

class ConvolutionChains : public testing::Test {
 protected:
  Value normal(const std::string& name, const Shape& shape) {
    const auto draw = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 1, seed, 1); };
    return graph_.variable(name, {DType::f32, shape}, draw, /*trainable=*/true);
  }
  Value convolution(const std::string& name) {
    return conv2d(x_, normal(name, {4, 4, 3, 3}), normal(name + " bias", {4}), {.padding = {1}});
  }

  /// "chain conv2d" where that is the centre.
  static Names operations(const Graph& graph) {
    Names names;
    for (const graph::Node* node : graph.all(NodeKind::operation)) {
      names.push_back(node->op->name);
      const std::string text = graph::to_text(graph, *node);
      if (text.find("centre=conv2d") != std::string::npos) names.back() += " conv2d";
    }
    return names;
  }

  static std::vector<Tensor> results_of(const Graph& graph) {
    const Tensor x = Tensor::empty({2, 4, 5, 6});
    fill_normal(x, 0, 1, 1, 1);
    State state;
    graph::Executable executable(graph, state);
    executable.run({{"x", x}});
    std::vector<Tensor> results;
    for (const graph::Output& output : graph.outputs()) results.push_back(executable.output(output.name).clone());
    return results;
  }

  /// What remains on a device of a graph that gives the same bits.
  static Names expect_same(const Graph& graph, DeviceKind device = DeviceKind::cpu) {
    const Graph grown = graph::grow_chains(graph, device);
    graph::verify(grown);
    const std::vector<Tensor> expected = results_of(graph), found = results_of(grown);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << graph::to_text(grown);
    return operations(grown);
  }

  /// Likewise on both; a build without CUDA has no kernel that could take a program.
  void expect(const Names& on_cpu, const Names& on_gpu) const {
    EXPECT_EQ(expect_same(graph_), on_cpu);
    if (ops::registry().find("conv2d").cuda) {
      EXPECT_EQ(expect_same(graph_, DeviceKind::cuda), on_gpu);
    }
  }
  void expect(const Names& names) const { expect(names, names); }

  Graph graph_;
  Value x_ = graph_.input("x", {2, 4, 5, 6});
};

TEST_F(ConvolutionChains, AreAnActivation) {
  graph_.output("y", relu(convolution("a")));
  expect({chain});
  const Graph grown = graph::grow_chains(graph_, DeviceKind::cpu);
  const graph::Node& node = grown.producer(grown.outputs()[0].value);
  const std::string text = graph::to_text(grown, node);
  EXPECT_NE(text.find("after=y0 = relu(x0); return y0} : f32 2x4x5x6"), std::string::npos) << text;
  EXPECT_EQ(node.op->attributes_from_json(node.attributes.json()), node.attributes);
}

TEST_F(ConvolutionChains, AreAResidualAndAnActivation) {
  graph_.output("y", relu(convolution("a") + x_));
  graph_.output("z", clamp(x_ + convolution("b"), 0, 6));
  graph_.output("w", silu(convolution("c")) + x_);
  expect(Names(3, chain));
  EXPECT_NE(graph::to_text(graph::grow_chains(graph_, DeviceKind::cpu)).find("after=y0 = add(x1, x0); y1 = clamp(y0)"), std::string::npos);
}

TEST_F(ConvolutionChains, FollowAFoldedBatchNorm) {
  const auto statistics = [&](const std::string& name) {
    const auto draw = [](const Tensor& tensor, std::uint64_t seed) { fill_uniform(tensor, 0.5, 1.5, seed, 1); };
    return graph_.variable(name, {DType::f32, {4}}, draw);
  };
  const Value y = conv2d(x_, normal("weight", {4, 4, 3, 3}), {}, {.padding = {1}});
  const Value inputs[] = {y, statistics("a"), statistics("b"), statistics("c"), statistics("d")};
  graph_.output("y", relu(ops::emit("batch_norm", inputs, ops::BatchNormAttributes{.training = false})[0] + x_));
  const Names names = expect_same(graph::for_inference(graph_));
  EXPECT_EQ(names.back(), chain);
  EXPECT_EQ(std::count(names.begin(), names.end(), "relu"), 0);
}

TEST_F(ConvolutionChains, AddTheEarlierOfTwoConvolutionsToTheLater) {
  graph_.output("y", relu(convolution("a") + convolution("b")));
  expect({"conv2d", chain});
}

TEST_F(ConvolutionChains, ChainConvolutions) {
  const Value a = relu(convolution("a"));
  const Value b = conv2d(a, normal("weight", {4, 4, 3, 3}), {}, {.padding = {1}});
  graph_.output("y", relu(b + a));
  expect({chain, chain});
}

TEST_F(ConvolutionChains, LeaveWhatOthersRead) {
  const Value a = convolution("a"), b = convolution("b"), c = convolution("c") + x_;
  graph_.output("y", relu(a));
  graph_.output("s", sum(a, {0, 1, 2, 3}));
  graph_.output("z", relu(b));
  graph_.output("b", b);
  graph_.output("w", relu(c));
  graph_.output("c", c);
  expect({"conv2d", "conv2d", chain, "relu", "sum", "relu", "relu"});
}

/// With a number for each channel or for all, or an image, before and after activations.
TEST_F(ConvolutionChains, AreFunctionsOfFurtherOperands) {
  const Value channels = normal("channels", {4, 1, 1}), others = normal("others", {1, 4, 1, 1});
  graph_.output("a", relu(convolution("a")) + channels);
  graph_.output("b", (minimum(convolution("b"), graph_.constant(Tensor::full({}, 0.5))) + channels) * 2);
  graph_.output("c", mish(mish(convolution("c") - 0.5)));
  graph_.output("d", relu(hard_swish(others - convolution("d"))));
  graph_.output("e", maximum(tanh(convolution("e") * x_) / channels, others));
  graph_.output("f", hard_sigmoid(convolution("f") * 3) * channels);
  expect(Names(6, chain));
}

TEST_F(ConvolutionChains, EndWhereThereIsNoFurtherStep) {
  const Value channels = normal("channels", {4, 1, 1});
  Value y = convolution("a");
  for (int i = 0; i < 6; ++i) y = i % 2 == 0 ? y * channels : tanh(y);
  graph_.output("y", tanh(y));
  Value z = convolution("b");
  for (int i = 0; i < 5; ++i) z = z + normal(concat("operand ", i), {4, 1, 1});
  graph_.output("z", z);
  graph_.output("w", convolution("c") * x_ + x_);
  graph_.output("v", channels / convolution("d"));
  graph_.output("u", convolution("e") * normal("width", {6}));
  expect({chain, chain, chain, chain, "conv2d", "multiply"},
         {chain, "tanh", chain, "add", chain, "add", "conv2d", "divide", "conv2d", "multiply"});
}

/// Libraries have no kernels for convolutions of each channel by itself that do more than rectifiers and a residual.
TEST_F(ConvolutionChains, LeaveWhatIsNotFusedWithDepthwiseConvolutions) {
  const auto depthwise = [&](const char* name) { return conv2d(x_, normal(name, {4, 1, 3, 3}), {}, {.padding = {1}, .groups = 4}); };
  graph_.output("y", hard_swish(depthwise("a")));
  graph_.output("z", relu(depthwise("b")) + x_);
  expect({chain, chain}, {"conv2d", "hard_swish", chain});
}

TEST_F(ConvolutionChains, LeaveWhatIsNoStep) {
  graph_.output("w", clamp(convolution("c"), std::nullopt, 1));
  const Value d = convolution("d");
  graph_.output("v", d + d);
  const Value e = convolution("e") + x_;
  graph_.output("u", e + sigmoid(x_));
  expect({chain, chain, "sigmoid", chain}, {"conv2d", "clamp", "conv2d", "add", chain, "sigmoid", "add"});
}

/// In strict float32 libraries are not asked for steps that they may round otherwise, or have no kernels for: these are joined with what
/// follows.
TEST_F(ConvolutionChains, LeaveWhatRoundsToOthersInStrictFloat32) {
  graph_.output("y", silu(convolution("a")));
  graph_.output("z", relu(convolution("b")));
  graph_.output("w", convolution("c") * normal("channels", {4, 1, 1}));
  expect(Names(3, chain));
  set_numerics({.tf32 = false});
  expect(Names(3, chain), {"conv2d", "silu", chain, "conv2d", "multiply"});
  set_numerics({});
}

/// However often its operators read each other's results, and with numbers for each sample, where there is no library to ask. What changes
/// the type is left.
TEST_F(ConvolutionChains, AreAnyProgram) {
  const Value a = convolution("a"), b = convolution("b") * normal("samples", {2, 1, 1, 1});
  graph_.output("a", a * sigmoid(a) + x_);
  graph_.output("b", relu(b) - b);
  graph_.output("c", cast(relu(convolution("c")), DType::f64));
  expect({chain, chain, chain, "cast"}, {"conv2d", "conv2d", "multiply", "sigmoid", "multiply", "add", "relu", "subtract", chain, "cast"});
}

TEST_F(ConvolutionChains, AreNotMovedPastAnUpdate) {
  const auto zero = [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); };
  const Value counter = graph_.variable("counter", {DType::i64, {}}, zero), a = convolution("a");
  graph_.output("d", dropout(x_, counter, 0.5, 1));
  graph_.output("y", relu(a));
  const Names names = expect_same(graph_);
  EXPECT_EQ(std::count(names.begin(), names.end(), "relu"), 1);
}

/// A linear layer over the channels of an image is a convolution with one tap, where only elementwise operations follow.
TEST_F(ConvolutionChains, BeginWithLinearLayersOverChannels) {
  const auto layer = [&](const std::string& name, std::int64_t channels = 4) {
    const Value y = linear(permute(x_, {0, 2, 3, 1}), normal(name, {channels, 4}), normal(name + " bias", {channels}));
    return permute(y, {0, 3, 1, 2});
  };
  const Value b = layer("b"), c = layer("c");
  graph_.output("a", layer("a") * normal("scale", {4, 1, 1}) + x_);
  graph_.output("b", b);
  graph_.output("c", c);
  graph_.output("d", relu(c));
  graph_.output("e", relu(layer("e", 3)));
  graph_.output("f", relu(permute(reshape(x_, {2, 5, 6, 4}), {0, 3, 1, 2})));
  graph_.output("g", relu(permute(reshape(x_, {2, 30, 4}), {0, 2, 1})));
  graph_.output("h", relu(permute(reshape(reshape(x_, {2, 30, 4}), {2, 5, 6, 4}), {0, 3, 1, 2})));
  const Value hidden = gelu(linear(permute(x_, {0, 2, 3, 1}), normal("hidden", {8, 4})));
  graph_.output("i", permute(linear(hidden, normal("i", {4, 8})), {0, 3, 1, 2}) + x_);
  const Graph moved = graph::compute_along_channels(graph_);
  graph::verify(moved);
  const Names names = operations(moved);
  EXPECT_EQ(std::count(names.begin(), names.end(), "conv2d"), 3);
  EXPECT_EQ(std::count(names.begin(), names.end(), "linear"), 3);
  const std::vector<Tensor> expected = results_of(graph_), found = results_of(moved);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(near(found[i], expected[i], 1e-6, largest_finite(expected[i])));
}

/// Two of them and what lies between and after, as in a block of ConvNeXt.
TEST_F(ConvolutionChains, AreLinearLayersOverChannelsOnACpuToo) {
  const Value hidden = gelu(linear(permute(x_, {0, 2, 3, 1}), normal("hidden", {8, 4}), normal("hidden bias", {8})));
  graph_.output("y", permute(linear(hidden, normal("y", {4, 8})), {0, 3, 1, 2}) * normal("scale", {4, 1, 1}) + x_);
  const Graph compiled = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph_);
  const Names names = operations(compiled);
  EXPECT_EQ(std::count(names.begin(), names.end(), chain), 2);
  EXPECT_EQ(std::count(names.begin(), names.end(), "linear") + std::count(names.begin(), names.end(), "gelu"), 0);
  const Tensor expected = results_of(graph_)[0];
  EXPECT_TRUE(near(results_of(compiled)[0], expected, 1e-6, largest_finite(expected)));
}

/// A gradient that is made of the activation's output lets it be part of the convolution; one that is made of its input does not.
TEST_F(ConvolutionChains, AreThereInTrainingWhereTheGradientReadsTheOutput) {
  const Value y = relu(convolution("a")), z = silu(convolution("b"));
  const Value loss = sum(y * y + z, {0, 1, 2, 3});
  const Value weights[] = {graph_.value(graph_.find(NodeKind::variable, "a")->outputs[0]),
                           graph_.value(graph_.find(NodeKind::variable, "b")->outputs[0])};
  const Values gradients = gradient(loss, weights);
  graph_.output("loss", loss);
  graph_.output("da", gradients[0]);
  graph_.output("db", gradients[1]);
  const Names names = expect_same(graph_);
  EXPECT_EQ(std::count(names.begin(), names.end(), chain), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "relu"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "silu"), 1);
}

/// Memory is planned before there is data, such as the exponent.
TEST_F(ConvolutionChains, MayRaiseToAPower) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 4, 4}), weight = graph.input("weight", {3, 2, 3, 3});
  graph.output("y", power(conv2d(x, weight), 2.0));
  Program program(graph, std::make_shared<State>(Device::cpu()));
  const Tensor result = program.run({{"x", Tensor::full({1, 2, 4, 4}, 1)}, {"weight", Tensor::full({3, 2, 3, 3}, 0.5)}}).output("y");
  EXPECT_EQ(result.to_vector<float>(), std::vector<float>(12, 81));
}

/// A program repeats what few channels have; rows of pixels need not be whole multiples of that.
TEST_F(ConvolutionChains, SlopeFewChannelsEachByItsOwn) {
  for (const std::int64_t channels : {1, 3, 5, 12, 20}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Graph graph;
      const Value x = graph.input("x", {2, channels, 23, 19}, dtype), weight = graph.input("weight", {channels, channels, 1, 1}, dtype);
      const Value slope = graph.input("slope", {channels}, dtype);
      graph.output("y", prelu(conv2d(x, weight), slope));
      Tensor one = Tensor::zeros({channels, channels, 1, 1});
      Tensor image = Tensor::empty({2, channels, 23, 19}), slopes = Tensor::empty({channels});
      for (std::int64_t c = 0; c < channels; ++c) {
        one.data<float>()[c * channels + c] = 1;
        slopes.data<float>()[c] = 0.25f * static_cast<float>(c - 2);
      }
      std::vector<float> expected;
      for (std::int64_t i = 0; i < image.elements(); ++i) {
        const float number = static_cast<float>(i % 31 - 15);
        image.data<float>()[i] = number;
        expected.push_back(number > 0 ? number : number * slopes.data<float>()[i / (23 * 19) % channels]);
      }
      Program program(graph, std::make_shared<State>(Device::cpu()));
      const Bindings given = {{"x", image.to(dtype)}, {"weight", one.to(dtype)}, {"slope", slopes.to(dtype)}};
      EXPECT_EQ(program.run(given).output("y").to(DType::f32).to_vector<float>(), expected) << channels << " channels, " << dtype;
    }
  }
}

}  // namespace
}  // namespace frit::convolution_chains_test
