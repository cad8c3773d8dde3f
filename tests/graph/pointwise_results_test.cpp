#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/core/cuda/device.h"
#include "frit/core/random.h"
#include "frit/graph/executable.h"
#include "frit/graph/layouts.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

using graph::NodeKind;
using Norm = std::function<Value(Graph& graph, Value x, Value weight, Value bias)>;

Value batch_norm_of(Graph& graph, Value x, Value weight, Value bias) {
  const auto running = [&](const char* name, double value) {
    return graph.variable(name, {x.dtype(), {x.dim(1)}},
                          [value](const Tensor& t, std::uint64_t) { copy(t, Tensor::full(t.shape(), value, t.dtype())); });
  };
  return batch_norm(x, weight, bias, running("mean", 0), running("variance", 1));
}
Value group_norm_of(Graph&, Value x, Value weight, Value bias) { return group_norm(x, 2, weight, bias); }
Value instance_norm_of(Graph&, Value x, Value weight, Value bias) { return instance_norm(x, weight, bias); }
Value plain_instance_norm_of(Graph&, Value x, Value, Value) { return instance_norm(x); }

/// relu(norm(x) + residual), and its gradients by x and the parameters.
Graph training_graph(const Norm& norm, const Shape& shape, DType dtype) {
  Graph graph;
  const Value x = graph.input("x", shape, dtype), residual = graph.input("residual", shape, dtype);
  const Value weight = graph.input("weight", {shape[1]}, dtype), bias = graph.input("bias", {shape[1]}, dtype);
  const Value y = relu(norm(graph, x, weight, bias) + residual);
  const Value loss = sum(y * y);
  const Values gradients = gradient(loss, std::vector{x, weight, bias});
  graph.output("loss", loss);
  graph.output("y", y);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i]) graph.output(concat("gradient", i), gradients[i]);
  }
  return graph;
}

int count_of(const Graph& graph, std::string_view name) {
  const auto nodes = graph.all(NodeKind::operation);
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [&](const graph::Node* node) { return node->op->name == name; }));
}

/// Norms of which only the statistics and the coefficients are computed.
int spelled_norms(const Graph& graph) {
  const std::vector<int> uses = graph::use_counts(graph);
  const auto nodes = graph.all(NodeKind::operation);
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [&](const graph::Node* node) {
    const auto reads = [&](std::size_t k) { return uses[static_cast<std::size_t>(node->outputs[k])]; };
    return node->outputs.size() == 6 && reads(0) == 0 && reads(3) > 0 && reads(4) > 0 && reads(5) > 0;
  }));
}

/// Far from zero, where a rounded mean would cost digits.
Bindings inputs_of(const Graph& graph) {
  Bindings inputs;
  for (const graph::Node* node : graph.all(NodeKind::input)) {
    const TensorType& type = graph.type(node->outputs[0]);
    const Tensor tensor = Tensor::empty(type.shape, DType::f64);
    fill_normal(tensor, node->name == "x" ? 100 : 0, 1, 5, inputs.size());
    inputs[node->name] = tensor.to(type.dtype);
  }
  return inputs;
}

void expect_near(const Graph& expected, const Graph& found, double tolerance, Device device = {}) {
  const Bindings inputs = inputs_of(expected);
  State state, other_state(device);
  graph::Executable plain(expected, state), spelled(found, other_state);
  plain.run(inputs);
  spelled.run(inputs);
  for (const graph::Output& output : expected.outputs()) {
    const Tensor& value = plain.output(output.name);
    EXPECT_TRUE(near(spelled.output(output.name).to(Device::cpu()), value, tolerance, largest_finite(value))) << output.name;
  }
  for (const graph::Node* node : expected.all(NodeKind::variable)) {
    const Tensor value = state.at(node->name);
    EXPECT_TRUE(near(other_state.at(node->name).to(Device::cpu()), value, tolerance, largest_finite(value))) << node->name;
  }
}

TEST(PointwiseResults, OfNormsAreComputedWithWhatFollows) {
  const std::pair<Norm, const char*> norms[] = {{batch_norm_of, "batch_norm"},
                                                {group_norm_of, "group_norm"},
                                                {instance_norm_of, "instance_norm"},
                                                {plain_instance_norm_of, "instance_norm"}};
  const std::tuple<Shape, DType, double> cases[] = {
      {{2, 4, 183, 181}, DType::f64, 1e-11}, {{2, 4, 16, 64, 67}, DType::f32, 2e-5}, {{2, 4, 512, 300}, DType::f16, 1e-2}};
  for (const auto& [norm, name] : norms) {
    for (const auto& [shape, dtype, tolerance] : cases) {
      SCOPED_TRACE(concat(name, ' ', dtype));
      const Graph plain = training_graph(norm, shape, dtype);
      const Graph spelled = graph::apply(graph::cleanup_pipeline(), plain);
      EXPECT_EQ(spelled_norms(spelled), 1);
      EXPECT_EQ(count_of(spelled, "relu"), 0);
      EXPECT_EQ(count_of(spelled, name), 1);
      expect_near(plain, spelled, tolerance);
    }
  }
}

/// A CPU's kernel of a norm computes what follows it, and what gives its gradient, whatever it updates.
TEST(PointwiseResults, OfNormsAreComputedByTheirKernelsOnACpu) {
  for (const auto& [norm, chain] : {std::pair<Norm, const char*>{batch_norm_of, "updating_chain"}, {group_norm_of, "chain"}}) {
    for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-11}, {DType::f32, 2e-5}}) {
      const Graph plain = training_graph(norm, {3, 4, 18, 17}, dtype);
      const Graph clean = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), plain);
      SCOPED_TRACE(graph::to_text(clean));
      EXPECT_EQ(count_of(clean, "updating_chain") + count_of(clean, "chain"), 2);
      EXPECT_GE(count_of(clean, chain), 1);
      EXPECT_EQ(count_of(clean, "relu") + count_of(clean, "relu_backward"), 0);
      expect_near(plain, clean, tolerance);
    }
  }
}

/// Which takes no programs on halves, nor on what is no image: there the elementwise operators are joined.
TEST(PointwiseResults, OfNormsWhoseKernelsTakeNothingAreSpelledOnACpu) {
  const std::tuple<Shape, DType, double> cases[] = {
      {{4, 8, 4100}, DType::f64, 1e-10}, {{4, 16, 4200}, DType::f32, 1e-3}, {{4, 16, 91, 91}, DType::f16, 3e-2}};
  for (const Norm& norm : {Norm(batch_norm_of), Norm(group_norm_of)}) {
    for (const auto& [shape, dtype, tolerance] : cases) {
      const Graph plain = training_graph(norm, shape, dtype);
      const Graph clean = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), plain);
      SCOPED_TRACE(graph::to_text(clean));
      EXPECT_EQ(spelled_norms(clean), 1);
      EXPECT_EQ(count_of(clean, "relu"), 0);
      EXPECT_EQ(count_of(clean, "chain") + count_of(clean, "updating_chain"), 0);
      expect_near(plain, clean, tolerance);
    }
  }
}

/// Statistics of one launch and of several.
TEST(CudaPointwiseResults, AreThoseOfTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  const std::tuple<Shape, DType, double> cases[] = {
      {{8, 64, 32, 32}, DType::f32, 1e-4}, {{4, 128, 32, 32}, DType::f16, 3e-2}, {{2, 4, 183, 181}, DType::f64, 1e-10}};
  for (const Norm& norm : {Norm(batch_norm_of), Norm(group_norm_of), Norm(instance_norm_of), Norm(plain_instance_norm_of)}) {
    for (const auto& [shape, dtype, tolerance] : cases) {
      const Graph plain = training_graph(norm, shape, dtype);
      const Graph spelled = graph::convert_layouts(graph::apply(graph::cleanup_pipeline(), plain), gpu);
      SCOPED_TRACE(graph::to_text(spelled));
      EXPECT_EQ(spelled_norms(spelled), 1);
      expect_near(plain, spelled, tolerance, gpu);
    }
  }
}

TEST(PointwiseResults, StayWithTheirOperationWhereNothingIsGained) {
  const auto spelled = [](const Graph& graph, bool for_chains = true) {
    return spelled_norms(graph::spell_pointwise_results(graph, for_chains));
  };
  EXPECT_EQ(spelled(training_graph(batch_norm_of, {2, 4, 8, 8}, DType::f32)), 0);  // small
  EXPECT_EQ(spelled(training_graph(batch_norm_of, {8, 64, 64, 64}, DType::f32)), 1);
  Graph pooled;
  const Value x = pooled.input("x", {2, 4, 256, 256}), weight = pooled.input("weight", {4}), bias = pooled.input("bias", {4});
  pooled.output("y", max_pool2d(group_norm(x, 2, weight, bias), {.kernel_size = {2}}));
  EXPECT_EQ(spelled(pooled, /*for_chains=*/false), 0);  // no elementwise operation reads it
  EXPECT_EQ(spelled(pooled), 1);                        // a pool takes it in
  Graph graph;
  const Value input = graph.input("x", {2, 4, 256, 256});
  graph.output("y", group_norm(input, 2, graph.input("weight", {4}), graph.input("bias", {4})));
  EXPECT_EQ(spelled(graph), 0);  // nothing reads it
}

TEST(PointwiseResults, AreSpelledForChains) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5, 6}), weight = graph.input("weight", {3, 4, 3, 2}), bias = graph.input("bias", {4});
  graph.output("y", softmax(conv_transpose2d(x, weight, bias, {.stride = {2}}), 1));
  const Graph chained = graph::apply(graph::cleanup_pipeline(DeviceKind::cuda), graph);
  EXPECT_EQ(count_of(chained, "chain"), 1) << graph::to_text(chained);
  EXPECT_EQ(count_of(chained, "softmax") + count_of(chained, "add"), 0) << graph::to_text(chained);
  expect_near(graph, chained, 2e-6);
  const Graph on_cpu = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph);
  EXPECT_EQ(count_of(on_cpu, "add") + count_of(on_cpu, "elementwise"), 0) << graph::to_text(on_cpu);
}

TEST(PointwiseResults, TheBiasOfATransposedConvolutionIsAddedWithWhatFollows) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5, 6}, DType::f64), weight = graph.input("weight", {3, 4, 3, 2}, DType::f64);
  const Value y = conv_transpose2d(x, weight, graph.input("bias", {4}, DType::f64), {.stride = {2}});
  graph.output("y", tanh(y) * y);
  graph.output("z", conv_transpose2d(x, weight, graph.input("other", {4}, DType::f64)));
  const Graph spelled = graph::remove_dead_code(graph::apply(graph::cleanup_pipeline(), graph));
  std::vector<std::size_t> inputs;
  for (const graph::Node* node : spelled.all(NodeKind::operation)) {
    if (node->op->name == "conv_transpose2d") inputs.push_back(node->inputs.size());
  }
  EXPECT_EQ(inputs, (std::vector<std::size_t>{2, 3})) << graph::to_text(spelled);  // nothing reads the other's result
  EXPECT_EQ(count_of(spelled, "add") + count_of(spelled, "tanh"), 0) << graph::to_text(spelled);
  expect_near(graph, spelled, 1e-12);
}

}  // namespace
}  // namespace frit
