#include <gtest/gtest.h>

#include <cmath>

#include "first_gpu.h"
#include "frit/autograd/gradient.h"
#include "frit/core/cuda/device.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

class CudaExecutable : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaExecutable, RecordedRunsSeeNewInputsAndVariables) {
  Graph graph;
  const Value w = graph.variable("w", {DType::f32, {3}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(2); });
  graph.output("y", sigmoid(graph.input("x", {2, 3}) * w));
  const auto cpu_state = std::make_shared<State>(), gpu_state = std::make_shared<State>(first_gpu);
  Program on_cpu(graph, cpu_state), on_gpu(graph, gpu_state);
  for (int run = 0; run < 4; ++run) {
    const Tensor x = Tensor::empty({2, 3}), w_value = Tensor::full({3}, run, DType::f32);
    fill_normal(x, 0, 1, 1, static_cast<std::uint64_t>(run));
    for (const auto& state : {cpu_state, gpu_state}) state->set("w", w_value);
    const std::vector<double> expected = on_cpu.run({{"x", x}}).output("y").to_vector<double>();
    const std::vector<double> found = on_gpu.run({{"x", run % 2 == 0 ? x : x.to(first_gpu)}}).output("y").to_vector<double>();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << "run " << run;
  }
}

/// By elementwise operators, and joins; chains read copies. Channels 1 to 9 and 3 to 11 of 12: no vector of them is aligned, and a thousand
/// pixels make a program worth compiling.
TEST_F(CudaExecutable, PartsAreReadWhereTheyLie) {
  for (const DType dtype : {DType::f16, DType::f32}) {
    Graph graph;
    const Value whole = relu(max_pool2d(graph.input("x", {3, 12, 62, 58}, dtype), {.kernel_size = {2}}));
    graph.output("y", slice(whole, 1, 1, 9) * 2.0 + slice(whole, 1, 3, 11));
    graph.output("z", concatenate({slice(whole, 1, 5, 9), slice(whole, 1, 0, 3)}, 1));
    const Tensor x = Tensor::empty({3, 12, 62, 58}, dtype);
    fill_normal(x, 0, 1, 1, 1);
    State on_cpu, on_gpu(first_gpu);
    graph::Executable expected(graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph), on_cpu);
    graph::Executable found(graph::apply(graph::cleanup_pipeline(DeviceKind::cuda), graph), on_gpu);
    for (graph::Executable* executable : {&expected, &found}) executable->run({{"x", x}});
    for (const graph::Step& step : found.steps()) EXPECT_NE(step.op->name, "slice");
    for (const char* const output : {"y", "z"}) {
      const std::vector<double> here = expected.output(output).to_vector<double>();
      const std::vector<double> there = found.output(output).to(Device::cpu()).to_vector<double>();
      ASSERT_EQ(here.size(), there.size());
      for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(there[i], here[i], 2e-3 * (1 + std::abs(here[i]))) << dtype << output << i;
    }
  }
}

/// A step of a U-Net up again, and its gradients, so large that kernels are compiled for it. `apart`: with the joined images as outputs,
/// too, which have memory of their own.
Graph level(DType dtype, bool apart) {
  Graph graph;
  Values weights;
  const auto weight = [&](const char* name, const Shape& shape) { return weights.emplace_back(graph.input(name, shape, dtype)); };
  const ConvolutionOptions same{.padding = {1, 1, 1}}, half{.stride = {2, 2, 2}, .padding = {1, 1, 1}}, twice{.stride = {2, 2, 2}};
  const Value x = graph.input("x", {2, 32, 48, 48, 48}, dtype);
  const Value first = conv3d(x, weight("first", {32, 32, 3, 3, 3}), {}, same), skip = leaky_relu(instance_norm(first));
  const Value down = relu(conv3d(first, weight("down", {64, 32, 3, 3, 3}), {}, half));
  const Value up = conv_transpose3d(down, weight("up", {64, 32, 2, 2, 2}), weight("bias", {32}), twice);
  const Value y = relu(conv3d(concatenate({up, skip}, 1), weight("last", {32, 64, 3, 3, 3}), {}, same));
  graph.output("y", y);
  const Shape shape = y.shape();
  const Values gradients = gradient(sum(y * graph.input("factors", shape, dtype)), weights);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  if (apart) graph.output("skip", skip), graph.output("up", up);
  return graph::apply(graph::cleanup_pipeline(), std::move(graph));
}

Bindings random_inputs(const Graph& graph, DType dtype) {
  Bindings inputs;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) {
    const Tensor tensor = Tensor::empty(graph.type(node->outputs[0]).shape, dtype);
    fill_normal(tensor, 0, node->name == "x" ? 1 : 0.1, 1, inputs.size());
    inputs[node->name] = tensor;
  }
  return inputs;
}

/// All outputs of the graph, within a part of the largest value.
void expect_alike(const graph::Executable& found, const graph::Executable& expected, const Graph& graph, double tolerance) {
  for (const graph::Output& output : graph.outputs()) {
    const std::vector<double> here = expected.output(output.name).to(Device::cpu()).to_vector<double>();
    const std::vector<double> there = found.output(output.name).to(Device::cpu()).to_vector<double>();
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      largest = std::max(largest, std::abs(here[i]));
      difference = std::max(difference, std::abs(here[i] - there[i]));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(difference, tolerance * largest) << here.size() << ' ' << output.name;
  }
}

TEST_F(CudaExecutable, WhatIsJoinedIsComputedWhereItIsJoined) {
  for (const DType dtype : {DType::f16, DType::f32}) {
    const Graph together = level(dtype, false), apart = level(dtype, true);
    const Bindings inputs = random_inputs(together, dtype);
    State states[] = {State(first_gpu), State(first_gpu)};
    graph::Executable found(together, states[0]), expected(apart, states[1]);
    const auto joins = [](const graph::Executable& executable) {
      std::string text;
      for (const graph::Step& step : executable.steps()) text += step.op->name == "concatenate" ? "concatenate " : "";
      return text;
    };
    EXPECT_EQ(joins(expected), "concatenate ");
    EXPECT_EQ(joins(found), "") << dtype;
    for (graph::Executable* executable : {&expected, &found}) executable->run(inputs);
    expect_alike(found, expected, together, dtype == DType::f16 ? 2e-3 : 1e-4);
  }
}

/// Convolutions of volumes with norms after them, and their gradients.
Graph blocks(DType dtype) {
  Graph graph;
  Values weights;
  const auto weight = [&](const char* name, const Shape& shape) { return weights.emplace_back(graph.input(name, shape, dtype)); };
  const ConvolutionOptions same{.padding = {1, 1, 1}};
  const Value x = graph.input("x", {2, 16, 48, 44, 48}, dtype);
  const Value first = conv3d(x, weight("first", {32, 16, 3, 3, 3}), graph.input("bias", {32}, dtype), same);
  const Value y = leaky_relu(instance_norm(first, weight("gamma", {32}), weight("beta", {32})));
  const Value second = conv3d(y, weight("second", {32, 32, 3, 3, 3}), {}, same) + y;
  const Value z = relu(group_norm(second, 4));
  graph.output("z", z);
  const Values gradients = gradient(sum(z * graph.input("factors", z.shape(), dtype)), weights);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  return graph;
}

/// By kernels that Hopper's GPUs have.
TEST_F(CudaExecutable, StatisticsAreComputedWithWhatTheyAreOf) {
  if (cuda::capability(first_gpu.index) != 90) GTEST_SKIP() << "no GPU of Hopper's";
  const std::span<const graph::Pass> passes = graph::cleanup_pipeline();
  for (const DType dtype : {DType::f16, DType::f32}) {
    const Graph apart = graph::apply(passes.first(passes.size() - 1), blocks(dtype)), together = graph::join_norms(apart);
    const Bindings inputs = random_inputs(together, dtype);
    State states[] = {State(first_gpu), State(first_gpu)};
    graph::Executable found(together, states[0]), expected(apart, states[1]);
    for (graph::Executable* executable : {&expected, &found}) executable->run(inputs);
    int joined = 0;
    for (const graph::Step& step : found.steps()) {
      EXPECT_FALSE(step.op->reads_moments) << step.op->name;
      if (step.op->name != "chain_statistics") continue;
      ++joined;
      EXPECT_EQ(step.schedule(), "around conv3d: swept over columns, with moments");
    }
    EXPECT_EQ(joined, 2);
    expect_alike(found, expected, together, dtype == DType::f16 ? 1e-2 : 1e-3);  // what is rounded to TF32 differs
  }
}

TEST_F(CudaExecutable, ARecordedRunHasNoPreparation) {
  Graph graph;
  const Value w = graph.variable("w", {DType::f32, {3}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1); });
  graph.output("y", relu(graph.input("x", {3}) * (w + 1.0)));
  State state(first_gpu);
  graph::Executable executable(graph, state);
  const auto run = [&] {
    executable.run({{"x", Tensor::full({3}, 2)}});
    return executable.output("y").to(Device::cpu()).to_vector<double>();
  };
  const auto all = [](double value) { return std::vector<double>(3, value); };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(), all(4));
  ASSERT_EQ(executable.preparation().size(), 1u);
  executable.preparation()[0].calls[0].outputs[0].fill(10);
  EXPECT_EQ(run(), all(20)) << "what was prepared is read where it lies";
  for (int i = 0; i < 4; ++i) {  // the second time the preparation is recorded too
    state.set("w", Tensor::full({3}, i));
    for (int again = 0; again < 2; ++again) EXPECT_EQ(run(), all(2.0 * (i + 1))) << i;
  }
  const Tensor held = state.at("w");
  for (int i = 0; i < 3; ++i) {
    held.fill(i + 5);
    EXPECT_EQ(run(), all(2.0 * (i + 6))) << i;
  }
}

TEST_F(CudaExecutable, ARunAfterTheFirstAllocatesNothing) {
  Graph graph;
  const Value x = graph.input("x", {4, 3, 16, 16}), w = graph.input("w", {8, 3, 3, 3});
  graph.output("y", sum(relu(conv2d(x, w)), {1}));
  State state(first_gpu);
  graph::Executable executable(graph, state);
  const Bindings inputs = {{"x", Tensor::full({4, 3, 16, 16}, 0.5)}, {"w", Tensor::full({8, 3, 3, 3}, 0.1)}};
  for (int i = 0; i < 2; ++i) executable.run(inputs);
  const AllocatorStatistics before = allocator_of(first_gpu).statistics();
  for (int i = 0; i < 1000; ++i) executable.run(inputs);
  const AllocatorStatistics after = allocator_of(first_gpu).statistics();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.source_allocations, before.source_allocations);
  EXPECT_NEAR(executable.output("y").to(Device::cpu()).to_vector<double>()[0], 8 * 27 * 0.05, 1e-2);
}

TEST_F(CudaExecutable, ImagesLieChannelsLastThroughNormsPoolsAndJoins) {
  Graph graph;
  const Value x = graph.input("x", {2, 4, 9, 9}), w = graph.input("w", {4, 4, 3, 3});
  const Value y = conv2d(x, w), normal = relu(instance_norm(y)), pooled = max_pool2d(normal, {.kernel_size = {2}});
  const Value parts[] = {pooled, pooled};
  const Value joined = concatenate(parts, 0), weights = softmax(joined, 1);
  graph.output("z", sum(conv2d(weights, w), {0, 1}));
  const std::vector<Layout> layouts = graph::choose_layouts(graph, first_gpu);
  for (const Value& value : {x, y, normal, pooled, joined, weights}) {
    EXPECT_EQ(layouts[static_cast<std::size_t>(value.id())], Layout::channels_last) << value.id();
  }
}

TEST_F(CudaExecutable, AnOperationOfOneLayoutHasItsImagesInOne) {
  Graph graph;
  const Value x = graph.input("x", {2, 4, 9, 9}), w = graph.input("w", {4, 4, 3, 3});
  const Value y = conv2d(x, w), normal = instance_norm(y);
  graph.output("z", reshape(normal, {-1}));  // of what is contiguous
  const std::vector<Layout> layouts = graph::choose_layouts(graph, first_gpu);
  EXPECT_EQ(layouts[static_cast<std::size_t>(normal.id())], Layout::contiguous);
  EXPECT_EQ(layouts[static_cast<std::size_t>(y.id())], Layout::contiguous);
  EXPECT_EQ(layouts[static_cast<std::size_t>(x.id())], Layout::channels_last);
}

TEST_F(CudaExecutable, ConvolutionOutputsBetweenOperatorsThatTakeThemLieChannelsLast) {
  Graph graph;
  const Value x = graph.input("x", {2, 4, 9, 9}), w = graph.input("w", {4, 4, 3, 3});
  const Value y = conv2d(x, w);
  graph.output("z", conv2d(y, w));
  const std::vector<Layout> layouts = graph::choose_layouts(graph, first_gpu);
  EXPECT_EQ(layouts[static_cast<std::size_t>(y.id())], Layout::channels_last);
  EXPECT_EQ(layouts[static_cast<std::size_t>(graph.output_value("z").id())], Layout::channels_last);
  const std::vector<Layout> on_a_cpu = graph::choose_layouts(graph, Device::cpu());
  EXPECT_EQ(on_a_cpu[static_cast<std::size_t>(y.id())], Layout::channels_last);
  EXPECT_EQ(on_a_cpu[static_cast<std::size_t>(graph.output_value("z").id())], Layout::contiguous) << "outputs are read where they lie";

  const Tensor image = Tensor::empty({2, 4, 9, 9}), weight = Tensor::empty({4, 4, 3, 3});
  fill_normal(image, 0, 1, 1, 1);
  fill_normal(weight, 0, 1, 1, 2);
  State cpu_state, gpu_state(first_gpu);
  graph::Executable on_cpu(graph, cpu_state), on_gpu(graph, gpu_state);
  on_cpu.run({{"x", image}, {"w", weight}});
  on_gpu.run({{"x", image}, {"w", weight}});
  const std::vector<double> expected = on_cpu.output("z").to_vector<double>(), found = on_gpu.output("z").to_vector<double>();
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 0.3) << i;  // TF32 twice; values of some 40
}

}  // namespace
}  // namespace frit
