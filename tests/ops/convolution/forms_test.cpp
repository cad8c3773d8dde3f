// The other forms of convolutions against the convolutions as they are.

#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/graph/choose_forms.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

using Options = ConvolutionOptions;
using graph::NodeKind;

struct Call {
  std::vector<Shape> shapes;  ///< input, weight and perhaps bias
  Options options = {};
};

std::size_t count(const Graph& graph, std::string_view op) {
  std::size_t found = 0;
  for (const graph::Node* node : graph.all(NodeKind::operation)) found += node->op->name == op;
  return found;
}

Graph graph_of(const char* op, const Call& call) {
  Graph graph;
  Values inputs;
  for (const Shape& shape : call.shapes) inputs.push_back(graph.input(concat(inputs.size()), shape, DType::f64));
  graph.output("result", ops::emit_one(op, {inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : Value()}, call.options));
  return graph;
}

/// The result and the gradients of all inputs, the result's gradient being a fixed random tensor.
std::vector<Tensor> run_with_gradients(Graph graph) {
  const Value result = graph.output_value("result");
  const Tensor seed = Tensor::empty(result.shape(), result.dtype());
  fill_normal(seed, 0, 1, 7, 7);
  const Value seed_value = graph.constant(seed);
  Values inputs;
  Bindings bindings;
  for (const graph::Node* node : graph.all(NodeKind::input)) inputs.push_back(graph.value(node->outputs[0]));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor& input = bindings[concat(i)] = Tensor::empty(inputs[i].shape(), inputs[i].dtype());
    fill_normal(input, 0, 1, 3, i);
  }
  const Values gradients = gradient(std::span(&result, 1), std::span(&seed_value, 1), inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  State state;
  graph::Executable executable(graph::apply(graph::cleanup_pipeline(), std::move(graph)), state);
  executable.run(bindings);
  std::vector<Tensor> results = {executable.output("result").clone()};
  for (std::size_t i = 0; i < gradients.size(); ++i) results.push_back(executable.output(concat("gradient ", i)).clone());
  return results;
}

void expect_equal(const Graph& plain, const Graph& other) {
  const std::vector<Tensor> expected = run_with_gradients(plain), found = run_with_gradients(other);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::vector<double> e = expected[i].to_vector<double>(), f = found[i].to_vector<double>();
    ASSERT_EQ(f.size(), e.size()) << "result " << i;
    double largest = 1;
    for (const double value : e) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < e.size(); ++k) ASSERT_NEAR(f[k], e[k], 1e-10 * largest) << "result " << i << ", element " << k;
  }
}

Graph in_form(const Graph& graph, const std::string& name) {
  return graph::in_forms(graph, [&](const graph::Node&) { return name; });
}

TEST(ConvolutionForms, PaddedChannelsChangeNothing) {
  const std::pair<const char*, Call> calls[] = {{"conv2d", {{{2, 3, 5, 7}, {4, 3, 3, 2}, {4}}}},
                                                {"conv2d", {{{1, 6, 6, 5}, {3, 6, 2, 3}}, {.stride = {2}, .padding = {1, 2}}}},
                                                {"conv2d", {{{2, 1, 7, 7}, {5, 1, 3, 3}, {5}}, {.padding = {2}, .dilation = {2, 1}}}},
                                                {"conv3d", {{{2, 3, 3, 4, 5}, {2, 3, 2, 3, 2}, {2}}}},
                                                {"conv3d", {{{1, 5, 4, 3, 4}, {3, 5, 3, 2, 2}}, {.stride = {2, 1, 3}, .padding = {1}}}},
                                                {"conv3d", {{{0, 3, 3, 3, 3}, {2, 3, 3, 3, 3}, {2}}}}};
  for (const auto& [op, call] : calls) {
    for (const std::int64_t multiple : {4, 8}) {
      SCOPED_TRACE(concat(op, ' ', call.shapes[0], " to ", multiple));
      const Graph plain = graph_of(op, call), padded = in_form(plain, concat("channels padded to ", multiple));
      EXPECT_EQ(count(padded, "pad"), 2u) << graph::to_text(padded);
      EXPECT_EQ(count(padded, op), 1u);
      expect_equal(plain, padded);
    }
  }
}

TEST(ConvolutionForms, SubpixelFormIsTheTransposedConvolution) {
  const std::vector<Call> flat = {
      {{{2, 3, 3, 4}, {3, 4, 3, 3}, {4}}, {.stride = {2}, .padding = {1}}},
      {{{2, 3, 3, 4}, {3, 2, 3, 3}}, {.stride = {2}, .padding = {1}, .output_padding = {1}}},
      {{{1, 2, 4, 3}, {2, 3, 4, 5}, {3}}, {.stride = {2, 3}, .padding = {3, 1}}},
      {{{1, 4, 3, 3}, {4, 2, 1, 2}, {2}}, {.stride = {3}, .output_padding = {2, 0}}},  // the kernel is smaller than the stride
      {{{2, 2, 3, 2}, {2, 3, 7, 2}, {3}}, {.stride = {2, 1}, .padding = {4, 0}}},
      {{{1, 1, 5, 1}, {1, 1, 3, 3}}, {.stride = {1, 2}, .padding = {2, 0}, .output_padding = {0, 1}}},
      {{{0, 2, 3, 3}, {2, 3, 3, 3}, {3}}, {.stride = {2}}}};
  const std::vector<Call> deep = {
      {{{2, 3, 2, 3, 4}, {3, 4, 3, 3, 3}, {4}}, {.stride = {2}, .padding = {1}}},
      {{{1, 2, 2, 2, 3}, {2, 3, 2, 3, 4}, {3}}, {.stride = {2, 3, 1}, .padding = {0, 1, 2}, .output_padding = {1, 2, 0}}},
      {{{1, 3, 3, 2, 2}, {3, 2, 1, 2, 5}}, {.stride = {3, 2, 2}, .padding = {0, 0, 2}, .output_padding = {0, 1, 1}}}};
  const auto check = [](const char* op, const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      SCOPED_TRACE(concat(op, ' ', call.shapes[0], ' ', call.shapes[1], ' ', fields_text(call.options)));
      const Graph plain = graph_of(op, call), subpixel = in_form(plain, "sub-pixel");
      EXPECT_EQ(count(subpixel, op), 0u) << graph::to_text(subpixel);
      for (const char* part : {"pack_taps", "subpixel_weight", "depth_to_space"}) EXPECT_EQ(count(subpixel, part), 1u) << part;
      expect_equal(plain, subpixel);
    }
  };
  check("conv_transpose2d", flat);
  check("conv_transpose3d", deep);
}

TEST(ConvolutionForms, StayAwayWhereTheyDoNotApply) {
  const std::pair<const char*, Call> calls[] = {{"conv2d", {{{1, 4, 5, 5}, {2, 4, 3, 3}}}},  // four channels already
                                                {"conv2d", {{{1, 6, 5, 5}, {2, 3, 3, 3}}, {.groups = 2}}},
                                                {"conv_transpose2d", {{{1, 2, 3, 3}, {2, 2, 3, 3}}, {.padding = {1}}}},  // no stride
                                                {"conv_transpose2d", {{{1, 2, 3, 3}, {2, 2, 3, 3}}, {.stride = {2}, .dilation = {2}}}},
                                                {"conv_transpose3d", {{{1, 2, 2, 2, 2}, {2, 1, 2, 2, 2}}, {.stride = {2}, .groups = 2}}}};
  for (const auto& [op, call] : calls) {
    const Graph plain = graph_of(op, call);
    for (const char* form : {"channels padded to 4", "sub-pixel", "no form's name", ""}) {
      EXPECT_EQ(graph::to_text(in_form(plain, form)), graph::to_text(plain)) << op << ' ' << form;
    }
  }
}

/// The transposed convolution and the chain behind it.
Value chain(Graph& graph, const Shape& input, const Shape& weight, const Options& options, DType dtype) {
  const auto normal = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 0.5, seed, 0); };
  const Value w = graph.variable("w", {dtype, weight}, normal, true), b = graph.variable("b", {dtype, {weight[1]}}, normal, true);
  const Value bias = graph.variable("bias", {dtype, {1, 1, 1, 1}}, normal, true);
  const Value y = logsumexp(conv_transpose3d(graph.input("x", input, dtype), w, b, options), {1}, true);
  return clamp(y * sigmoid(y + 3.0) / 6.0 - bias, -1, 1);
}

TEST(ConvolutionForms, TheChainBehindASubpixelFormReadsItsBlocks) {
  Graph graph;
  graph.output("y", chain(graph, {2, 3, 2, 3, 4}, {3, 5, 3, 3, 3}, {.stride = {2}, .padding = {1}}, DType::f32));
  const Graph fused = in_form(graph::apply(graph::forward_pipeline(), graph), "sub-pixel");
  EXPECT_EQ(fused.all(NodeKind::operation).size(), 4u) << graph::to_text(fused);
  for (const char* part : {"pack_taps", "subpixel_weight", "conv3d", "logsumexp_sigmoid_scale_subtract_clamp"}) {
    EXPECT_EQ(count(fused, part), 1u) << part;
  }
}

TEST(ConvolutionForms, ImagesThatAreReadTwiceAreNotAbsorbed) {
  Graph graph;
  const Value w = graph.input("w", {3, 4, 3, 3, 3}), bias = graph.input("bias", {1, 1, 1, 1});
  const Value y = conv_transpose3d(graph.input("x", {2, 3, 2, 3, 4}), w, {}, {.stride = {2}});
  const Value z = logsumexp(y, {1}, true);
  graph.output("y", y);
  graph.output("z", clamp(z * sigmoid(z + 3.0) / 6.0 - bias, -1, 1));
  const Graph fused = in_form(graph::apply(graph::forward_pipeline(), graph), "sub-pixel");
  EXPECT_EQ(count(fused, "depth_to_space"), 1u);
  EXPECT_EQ(count(fused, "logsumexp_sigmoid_scale_subtract_clamp"), 1u);
}

TEST(ConvolutionForms, TrainAlike) {
  const auto losses = [](const std::string& form) {
    Graph graph;
    const Value y = chain(graph, {2, 3, 2, 3, 4}, {3, 5, 3, 2, 3}, {.stride = {2, 2, 3}, .padding = {1, 0, 2}}, DType::f64);
    const Shape shape = y.shape();
    graph.output("error", mean_squared_error(y, graph.input("target", shape, DType::f64)));
    graph = in_form(graph::apply(graph::forward_pipeline(), graph), form);
    TrainStep step(graph.output_value("error"), Sgd{.learning_rate = 0.5}, Device::cpu());
    const Tensor x = Tensor::empty({2, 3, 2, 3, 4}, DType::f64), target = Tensor::empty(shape, DType::f64);
    fill_normal(x, 0, 1, 1, 1);
    fill_normal(target, 0, 1, 1, 2);
    std::vector<double> result;
    for (int i = 0; i < 5; ++i) result.push_back(step({{"x", x}, {"target", target}}));
    return result;
  };
  const std::vector<double> plain = losses(""), subpixel = losses("sub-pixel");
  EXPECT_LT(plain.back(), plain.front());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(subpixel[i], plain[i], 1e-12) << "step " << i;
}

}  // namespace
}  // namespace frit
