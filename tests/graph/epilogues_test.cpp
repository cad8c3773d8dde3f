// What elementwise operations do to a convolution's result becomes its epilogue, where nothing else reads what lies between.

#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

using graph::NodeKind;
using Names = std::vector<std::string>;

class Epilogues : public testing::Test {
 protected:
  Value normal(const std::string& name, const Shape& shape) {
    const auto draw = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 1, seed, 1); };
    return graph_.variable(name, {DType::f32, shape}, draw, /*trainable=*/true);
  }
  Value convolution(const std::string& name) {
    return conv2d(x_, normal(name, {4, 4, 3, 3}), normal(name + " bias", {4}), {.padding = {1}});
  }

  static Names operations(const Graph& graph) {
    Names names;
    for (const graph::Node* node : graph.all(NodeKind::operation)) names.push_back(node->op->name);
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

  /// What remains of a graph that gives the same bits.
  static Names expect_same(const Graph& graph) {
    const Graph grown = graph::grow_epilogues(graph);
    graph::verify(grown);
    const std::vector<Tensor> expected = results_of(graph), found = results_of(grown);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << graph::to_text(grown);
    return operations(grown);
  }

  Graph graph_;
  Value x_ = graph_.input("x", {2, 4, 5, 6});
};

TEST_F(Epilogues, AreAnActivation) {
  graph_.output("y", relu(convolution("a")));
  EXPECT_EQ(expect_same(graph_), Names{"conv2d_epilogue"});
  const std::string text = graph::to_text(graph::grow_epilogues(graph_));
  EXPECT_NE(text.find("{stride=1x1 padding=1x1 dilation=1x1 groups=1 output_padding=[] program=y0 = relu(x0); return y0} : f32 2x4x5x6"),
            std::string::npos)
      << text;
}

TEST_F(Epilogues, AreAResidualAndAnActivation) {
  graph_.output("y", relu(convolution("a") + x_));
  graph_.output("z", clamp(x_ + convolution("b"), 0, 6));
  graph_.output("w", silu(convolution("c")) + x_);
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d_epilogue", "conv2d_epilogue", "conv2d_epilogue"}));
  EXPECT_NE(graph::to_text(graph::grow_epilogues(graph_)).find("program=y0 = add(x1, x0); y1 = clamp(y0)"), std::string::npos);
}

TEST_F(Epilogues, FollowAFoldedBatchNorm) {
  const auto statistics = [&](const std::string& name) {
    const auto draw = [](const Tensor& tensor, std::uint64_t seed) { fill_uniform(tensor, 0.5, 1.5, seed, 1); };
    return graph_.variable(name, {DType::f32, {4}}, draw);
  };
  const Value y = conv2d(x_, normal("weight", {4, 4, 3, 3}), {}, {.padding = {1}});
  const Value inputs[] = {y, statistics("a"), statistics("b"), statistics("c"), statistics("d")};
  graph_.output("y", relu(ops::emit("batch_norm", inputs, ops::BatchNormAttributes{.training = false})[0] + x_));
  const Names names = expect_same(graph::for_inference(graph_));
  EXPECT_EQ(names.back(), "conv2d_epilogue");
  EXPECT_EQ(std::count(names.begin(), names.end(), "relu"), 0);
}

TEST_F(Epilogues, AddTheEarlierOfTwoConvolutionsToTheLater) {
  graph_.output("y", relu(convolution("a") + convolution("b")));
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d", "conv2d_epilogue"}));
}

TEST_F(Epilogues, ChainConvolutions) {
  const Value a = relu(convolution("a"));
  const Value b = conv2d(a, normal("weight", {4, 4, 3, 3}), {}, {.padding = {1}});
  graph_.output("y", relu(b + a));
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d_epilogue", "conv2d_epilogue"}));
}

TEST_F(Epilogues, LeaveWhatOthersRead) {
  const Value a = convolution("a"), b = convolution("b"), c = convolution("c") + x_;
  graph_.output("y", relu(a));
  graph_.output("s", sum(a, {0, 1, 2, 3}));
  graph_.output("z", relu(b));
  graph_.output("b", b);
  graph_.output("w", relu(c));
  graph_.output("c", c);
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d", "conv2d", "conv2d_epilogue", "relu", "sum", "relu", "relu"}));
}

/// With a number for each channel or for all, or an image, before and after activations.
TEST_F(Epilogues, AreFunctionsOfFurtherOperands) {
  const Value channels = normal("channels", {4, 1, 1}), others = normal("others", {1, 4, 1, 1});
  graph_.output("a", relu(convolution("a")) + channels);
  graph_.output("b", (minimum(convolution("b"), graph_.constant(Tensor::full({}, 0.5))) + channels) * 2);
  graph_.output("c", mish(mish(convolution("c") - 0.5)));
  graph_.output("d", relu(hard_swish(others - convolution("d"))));
  graph_.output("e", maximum(tanh(convolution("e") * x_) / channels, others));
  graph_.output("f", hard_sigmoid(convolution("f") * 3) * channels);
  EXPECT_EQ(expect_same(graph_), Names(6, "conv2d_epilogue"));
}

TEST_F(Epilogues, EndWhereThereIsNoFurtherStep) {
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
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d_epilogue", "tanh", "conv2d_epilogue", "add", "conv2d_epilogue", "add", "conv2d", "divide",
                                        "conv2d", "multiply"}));
}

/// Libraries have no kernels for convolutions of each channel by itself that do more than rectifiers and a residual.
TEST_F(Epilogues, LeaveWhatIsNotFusedWithDepthwiseConvolutions) {
  const auto depthwise = [&](const char* name) { return conv2d(x_, normal(name, {4, 1, 3, 3}), {}, {.padding = {1}, .groups = 4}); };
  graph_.output("y", hard_swish(depthwise("a")));
  graph_.output("z", relu(depthwise("b")) + x_);
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d", "hard_swish", "conv2d_epilogue"}));
}

TEST_F(Epilogues, LeaveWhatIsNoStep) {
  graph_.output("w", clamp(convolution("c"), std::nullopt, 1));
  const Value d = convolution("d");
  graph_.output("v", d + d);
  const Value e = convolution("e") + x_;
  graph_.output("u", e + sigmoid(x_));
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d", "clamp", "conv2d", "add", "conv2d_epilogue", "sigmoid", "add"}));
}

/// In strict float32 libraries are not asked for steps that they may round otherwise, or have no kernels for: these are joined with what
/// follows.
TEST_F(Epilogues, LeaveWhatRoundsToOthersInStrictFloat32) {
  graph_.output("y", silu(convolution("a")));
  graph_.output("z", relu(convolution("b")));
  graph_.output("w", convolution("c") * normal("channels", {4, 1, 1}));
  EXPECT_EQ(expect_same(graph_), Names(3, "conv2d_epilogue"));
  set_numerics({.tf32 = false});
  EXPECT_EQ(expect_same(graph_), (Names{"conv2d", "silu", "conv2d_epilogue", "conv2d", "multiply"}));
  set_numerics({});
}

TEST_F(Epilogues, AreNotMovedPastAnUpdate) {
  const auto zero = [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); };
  const Value counter = graph_.variable("counter", {DType::i64, {}}, zero), a = convolution("a");
  graph_.output("d", dropout(x_, counter, 0.5, 1));
  graph_.output("y", relu(a));
  const Names names = expect_same(graph_);
  EXPECT_EQ(std::count(names.begin(), names.end(), "relu"), 1);
}

/// A gradient that is made of the activation's output lets it be part of the convolution; one that is made of its input does not.
TEST_F(Epilogues, AreThereInTrainingWhereTheGradientReadsTheOutput) {
  const Value y = relu(convolution("a")), z = silu(convolution("b"));
  const Value loss = sum(y * y + z, {0, 1, 2, 3});
  const Value weights[] = {graph_.value(graph_.find(NodeKind::variable, "a")->outputs[0]),
                           graph_.value(graph_.find(NodeKind::variable, "b")->outputs[0])};
  const Values gradients = gradient(loss, weights);
  graph_.output("loss", loss);
  graph_.output("da", gradients[0]);
  graph_.output("db", gradients[1]);
  const Names names = expect_same(graph_);
  EXPECT_EQ(std::count(names.begin(), names.end(), "conv2d_epilogue"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "relu"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "silu"), 1);
}

}  // namespace
}  // namespace frit
