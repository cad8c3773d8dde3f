// What lies between convolutions of lines (N, C, L) is computed on images (N, C, 1, L), as these are.

#include <gtest/gtest.h>

#include <algorithm>

#include "frit/graph/layouts.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/shape/resize.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

struct Network {
  Graph graph;
  std::uint64_t variables = 0;

  Value variable(const Shape& shape, bool trainable = true) {
    const auto normal = [stream = variables](const Tensor& tensor, std::uint64_t) { fill_normal(tensor, 0.5, 0.3, 7, stream); };
    return graph.variable(concat("v", variables++), {DType::f64, shape}, normal, trainable);
  }
  Value convolved(Value x, std::int64_t channels, const ConvolutionOptions& options = {.padding = {1}}) {
    return conv1d(x, variable({channels, x.dim(1) / options.groups, 3}), variable({channels}), options);
  }
  Value normalized(Value x) {
    const Shape channels{x.dim(1)};
    return batch_norm(x, variable(channels), variable(channels), variable(channels, false), variable(channels, false));
  }
};

/// The results of a graph, and its gradients by the trainable variables.
std::map<std::string, Tensor> trained_results_of(Graph graph) {
  Values variables;
  for (const graph::Node* node : graph.all(NodeKind::variable)) {
    if (node->trainable) variables.push_back(graph.value(node->outputs[0]));
  }
  const Values gradients = gradient(sum(square(cast(graph.value(graph.outputs()[0].value), DType::f64))), variables);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  State state;
  graph::Executable executable(graph, state);
  executable.run(random_inputs(graph));
  std::map<std::string, Tensor> results;
  for (const graph::Output& output : graph.outputs()) results[output.name] = executable.output(output.name).clone();
  return results;
}

void expect_same(const Graph& expected, const Graph& found) {
  const auto wanted = trained_results_of(expected), got = trained_results_of(found);
  for (const auto& [name, tensor] : wanted) {
    const std::vector<double> a = tensor.to_vector<double>(), b = got.at(name).to_vector<double>();
    ASSERT_EQ(got.at(name).shape(), tensor.shape()) << name;
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-10 * (1 + std::abs(a[i]))) << name << ' ' << i;
  }
}

std::size_t views(const Graph& graph) {
  const auto nodes = graph.all(NodeKind::operation);
  return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [](const graph::Node* node) { return node->op->view; }));
}

/// But for those of inputs, of parameters and of what is an output.
std::size_t views_inside(const Graph& graph) {
  const auto is_output = [&](int id) {
    return std::any_of(graph.outputs().begin(), graph.outputs().end(), [id](const graph::Output& output) { return output.value == id; });
  };
  std::size_t found = 0;
  for (const graph::Node* node : graph.all(NodeKind::operation)) {
    const bool of_operation = graph.producer(node->inputs[0]).kind == NodeKind::operation;
    found += node->op->view && of_operation && !is_output(node->outputs[0]);
  }
  return found;
}

TEST(UnitAxes, AResidualNetworkOfLinesHasNoViewsInside) {
  Network n;
  Value x = relu(n.normalized(n.convolved(n.graph.input("x", {2, 3, 12}, DType::f64), 8)));
  const Value y = group_norm(n.convolved(x, 8, {.padding = {2}, .dilation = {2}}), 2, n.variable({8}), n.variable({8}));
  x = relu(x + y * n.variable({8, 1}));
  const Value counter = n.graph.variable(
      "counter", {DType::i64, {}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); }, false);
  x = dropout(max_pool1d(x, {.kernel_size = {2}}), counter, 0.3, 5);
  x = n.convolved(resize(x, {.scale_factor = {2}, .mode = ResizeMode::linear}), 8);
  const Values halves = split(x, 4, 1);
  x = n.convolved(concatenate({sigmoid(halves[0]) * halves[1], halves[1]}, 1), 8);
  n.graph.output("y", pad(x, {0, 0, 1}, {0, 0, 2}));
  const Graph lifted = graph::compute_with_unit_axes(n.graph);
  EXPECT_EQ(views_inside(lifted), 0u) << graph::to_text(lifted);
  EXPECT_LT(views(lifted), views(n.graph));
  expect_same(n.graph, lifted);
}

TEST(UnitAxes, ReductionsAndPermutationsReadImages) {
  Network n;
  const Value x = n.convolved(n.graph.input("x", {2, 4, 9}, DType::f64), 8);
  const Value average = mean(relu(x), 2), greatest = max(x, 2), tokens = permute(relu(x), {0, 2, 1});
  n.graph.output("tokens", tokens * 2.0);
  n.graph.output("average", average + greatest);
  n.graph.output("of channels", sum(x, {1}, true));
  const Graph lifted = graph::compute_with_unit_axes(n.graph);
  for (const graph::Node* node : lifted.all(NodeKind::operation)) {
    if (node->op->permutation || node->op->name == "mean" || node->op->name == "sum" || node->op->name == "relu") {
      EXPECT_EQ(lifted.type(node->inputs[0]).shape.rank(), 4) << graph::to_text(lifted);
    }
  }
  expect_same(n.graph, lifted);
}

TEST(UnitAxes, BatchNormsOfLinesAreFoldedAtInference) {
  Network n;
  const Value x = n.normalized(n.convolved(n.graph.input("x", {2, 3, 10}, DType::f64), 8));
  n.graph.output("y", relu(x));
  Graph graph = graph::apply(graph::forward_pipeline(), graph::for_inference(n.graph));
  graph = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), std::move(graph));
  const std::string text = graph::to_text(graph);
  EXPECT_EQ(count(graph, "batch_norm"), 0u) << text;
  EXPECT_EQ(count(graph, "conv2d") + count(graph, "chain"), 1u) << text;
}

TEST(UnitAxes, LinesWithoutImagesStayAsTheyAre) {
  Network n;
  const Value x = n.graph.input("x", {2, 4, 6}, DType::f64);
  n.graph.output("y", reshape(relu(x) * n.variable({4, 1}), {2, 4, 2, 3}));
  EXPECT_EQ(graph::to_text(graph::compute_with_unit_axes(n.graph)), graph::to_text(n.graph));
}

}  // namespace
}  // namespace frit
