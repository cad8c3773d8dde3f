#include <gtest/gtest.h>

#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/attention.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

using graph::Node;
using graph::NodeKind;

std::vector<const Node*> operations_named(const Graph& graph, std::string_view op) {
  std::vector<const Node*> found;
  for (const Node* node : graph.all(NodeKind::operation)) {
    if (node->op->name == op) found.push_back(node);
  }
  return found;
}

/// Of what the only operation of the name reads, or gives.
DType input_dtype(const Graph& graph, std::string_view op, std::size_t input) {
  return graph.type(operations_named(graph, op).at(0)->inputs.at(input)).dtype;
}
DType output_dtype(const Graph& graph, std::string_view op) { return graph.type(operations_named(graph, op).at(0)->outputs[0]).dtype; }

struct Built {
  Graph graph;
  Value x = graph.input("x", {2, 3, 6, 5});
  Value weight = variable("weight", {4, 3, 3, 3});
  Value bias = variable("bias", {4});
  Value scale = variable("scale", {4, 1, 1});

  Value variable(const std::string& name, const Shape& shape) {
    return graph.variable(
        name, {DType::f32, shape}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0.5); }, /*trainable=*/true);
  }
};

TEST(LowerPrecision, StoresAttentionsWeightsInHalvesAndProbabilitiesInFloats) {
  Graph graph;
  const Value query = graph.input("query", {2, 5, 4}), value = graph.input("value", {2, 5, 4});
  const Value weights = attention_weights(query, value);
  graph.output("attended", matmul(weights, value));
  EXPECT_EQ(output_dtype(graph::lower_precision(graph, DType::f16), "softmax"), DType::f16);
  graph.output("weights", weights);
  EXPECT_EQ(output_dtype(graph::lower_precision(graph, DType::f16), "softmax"), DType::f32);
}

TEST(LowerPrecision, StoresMatrixWorkAndWhatFollowsInHalves) {
  Built b;
  b.graph.output("y", relu(conv2d(b.x, b.weight, b.bias)) * b.scale);
  for (const DType half : {DType::f16, DType::bf16}) {
    const Graph lowered = graph::lower_precision(b.graph, half);
    EXPECT_EQ(input_dtype(lowered, "conv2d", 0), DType::f32);  // a convolution reads an image as it is
    for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(input_dtype(lowered, "conv2d", i), half);
    EXPECT_EQ(output_dtype(lowered, "relu"), half);
    EXPECT_EQ(input_dtype(lowered, "multiply", 1), half);
    EXPECT_EQ(lowered.type(lowered.outputs()[0].value).dtype, half);
    for (const NodeKind kind : {NodeKind::input, NodeKind::variable}) {
      for (const Node* node : lowered.all(kind)) EXPECT_EQ(lowered.type(node->outputs[0]).dtype, DType::f32) << node->name;
    }
  }
}

TEST(LowerPrecision, LeavesAloneWhatDependsOnNoMatrixWork) {
  Built b;
  b.graph.output("y", relu(b.x) * 2.0);
  EXPECT_EQ(graph::to_text(graph::lower_precision(b.graph, DType::f16)), graph::to_text(b.graph));
  Graph wide;
  const Value x = wide.input("x", {1, 1, 3, 3}, DType::f64);
  wide.output("y", conv2d(x, wide.input("w", {1, 1, 2, 2}, DType::f64)));
  EXPECT_EQ(graph::to_text(graph::lower_precision(wide, DType::f16)), graph::to_text(wide));
}

TEST(LowerPrecision, CastsBackForWhatNeedsFloat32) {
  Built b;
  const Value y = conv2d(b.x, b.weight);
  b.graph.output("probabilities", softmax(y, 1));
  b.graph.output("loss", mean_squared_error(y, b.graph.input("target", y.shape())));
  const Graph lowered = graph::lower_precision(b.graph, DType::f16);
  EXPECT_EQ(input_dtype(lowered, "softmax", 0), DType::f32);
  EXPECT_EQ(input_dtype(lowered, "mean_squared_error", 0), DType::f16) << "it takes either";
  EXPECT_EQ(input_dtype(lowered, "mean_squared_error", 1), DType::f32);
  EXPECT_EQ(output_dtype(lowered, "mean_squared_error"), DType::f32);
}

TEST(LowerPrecision, LeavesRunningStatisticsInFloat32) {
  Built b;
  const auto running = [&](const char* name) {
    return b.graph.variable(name, {DType::f32, {4}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1); });
  };
  b.graph.output("y", batch_norm(conv2d(b.x, b.weight), b.bias, b.bias, running("mean"), running("variance")));
  const Graph lowered = graph::lower_precision(b.graph, DType::f16);
  EXPECT_EQ(input_dtype(lowered, "batch_norm", 0), DType::f16);
  for (const std::size_t i : {3u, 4u}) EXPECT_EQ(input_dtype(lowered, "batch_norm", i), DType::f32);
}

TEST(LowerPrecision, KeepsSelectionsInHalves) {
  Built b;
  const Value slope = b.variable("slope", {4});
  b.graph.output("y", conv2d(prelu(conv2d(b.x, b.weight), slope), b.variable("w", {4, 4, 1, 1})));
  b.graph.output("mask", where(greater(b.x, 0.0), b.x, b.x * 2.0));
  for (const DType half : {DType::f16, DType::bf16}) {
    const Graph lowered = graph::lower_precision(b.graph, half);
    const std::vector<const Node*> selections = operations_named(lowered, "where");
    ASSERT_EQ(selections.size(), 3u);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(lowered.type(selections[i]->outputs[0]).dtype, half) << "the input is an image";
    EXPECT_EQ(lowered.type(selections[2]->outputs[0]).dtype, DType::f32) << "it depends on no matrix work";
    EXPECT_EQ(lowered.type(operations_named(lowered, "conv2d").at(1)->inputs[0]).dtype, half);
  }
}

TEST(LowerPrecision, StoresFunctionsThatAreSpelledOutAsTheyAre) {
  Built b;
  const Value y = conv2d(b.x, b.weight);
  b.graph.output("y", y * (erf(y / 1.4142135623730951) + 1.0) * 0.5);
  b.graph.output("other", erf(y));
  const Graph lowered = graph::remove_dead_code(graph::lower_precision(b.graph, DType::f16));
  EXPECT_EQ(operations_named(lowered, "erf").size(), 1u);
  EXPECT_EQ(output_dtype(lowered, "gelu"), DType::f16);
  EXPECT_EQ(output_dtype(lowered, "erf"), DType::f32) << "it alone is computed in float32";
}

TEST(LowerPrecision, RefusesWhatIsNoHalf) { EXPECT_THROW(graph::lower_precision(Graph(), DType::f32), Error); }

TEST(LowerPrecision, FusesTheSameChainsWhichTakeTheirParametersInFloat32) {
  Built b;
  const Value y = instance_norm(conv2d(b.x, b.weight) * b.scale);
  b.graph.output("y", max(clamp(y, -1, 1) * b.scale, 1));
  const Graph fused = graph::apply(graph::forward_pipeline(), graph::lower_precision(b.graph, DType::f16));
  EXPECT_EQ(input_dtype(fused, "scale_instance_norm_clamp_scale_max", 0), DType::f16);
  EXPECT_EQ(input_dtype(fused, "scale_instance_norm_clamp_scale_max", 1), DType::f32);
  EXPECT_EQ(operations_named(fused, "cast").size(), 1u) << "of the weight\n" << graph::to_text(fused);
}

TEST(Absorption, PaddingStoresFloat32AsHalves) {
  Built b;
  b.graph.output("y", pad(cast(b.x, DType::f16), {0, 0, 0, 0}, {0, 5, 0, 0}));
  const Graph absorbed = graph::absorb(b.graph);
  EXPECT_EQ(operations_named(absorbed, "cast").size(), 0u);
  EXPECT_EQ(output_dtype(absorbed, "pad"), DType::f16);
  const Tensor x = Tensor::full({2, 3, 6, 5}, 0.1);
  const auto run = [&](const Graph& graph) {
    Program program(graph, std::make_shared<State>());
    return program.run({{"x", x}}).output("y").to_vector<double>();
  };
  EXPECT_EQ(run(absorbed), run(b.graph));
}

TEST(Absorption, SlicesOfHalvesAreLoadedAsFloat32) {
  Built b;
  b.graph.output("y", slice(cast(cast(b.x, DType::f16), DType::f32), 1, 0, 2));
  const Graph absorbed = graph::absorb(b.graph);
  EXPECT_EQ(operations_named(absorbed, "cast").size(), 1u);
  EXPECT_EQ(input_dtype(absorbed, "slice", 0), DType::f16);
  EXPECT_EQ(output_dtype(absorbed, "slice"), DType::f32);
}

TEST(Absorption, LeavesCastsThatPaddingCannotDo) {
  Built b;
  b.graph.output("y", pad(cast(b.graph.input("i", {2}, DType::i64), DType::f16), {1}, {1}));
  b.graph.output("z", pad(cast(b.scale, DType::f64), {0, 0, 0}, {1, 0, 0}));
  EXPECT_EQ(operations_named(graph::absorb(b.graph), "cast").size(), 2u);
}

}  // namespace
}  // namespace frit
