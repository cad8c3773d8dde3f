// What runs is what is meant to run.

#include <gtest/gtest.h>

#include "frit/core/cuda/device.h"
#include "frit/graph/profile.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/softmax.h"

namespace frit {
namespace {

/// The schedules of a graph's steps on a device, by operator.
std::map<std::string, std::string> schedules_of(const Graph& graph, Device device) {
  Program program(graph, std::make_shared<State>(device));
  std::map<std::string, TensorType> types;
  Bindings inputs;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) {
    const TensorType& type = types[node->name] = graph.type(node->outputs[0]);
    inputs[node->name] = Tensor::full(type.shape, 0.5, type.dtype).to(device);
  }
  graph::Executable& executable = program.compile(types);
  executable.run(inputs);
  std::map<std::string, std::string> schedules;
  for (const graph::StepProfile& step : graph::profile(executable, 1)) schedules[step.op] = step.schedule;
  return schedules;
}

/// Of a convolution without a bias.
std::string schedule_of_convolution(const Shape& image, const Shape& weight, DType dtype, const ConvolutionOptions& options = {}) {
  Graph graph;
  const Value x = graph.input("x", image, dtype), w = graph.input("w", weight, dtype);
  graph.output("y", image.rank() == 4 ? conv2d(x, w, {}, options) : conv3d(x, w, {}, options));
  return schedules_of(graph, Device::best()).at(concat("conv", image.rank() - 2, "d"));
}

TEST(Schedules, AreEmptyWhereThereIsOneWay) {
  Graph graph;
  graph.output("y", softmax(graph.input("x", {2, 3, 4, 5}), 1));
  EXPECT_EQ(schedules_of(graph, Device::cpu()), (std::map<std::string, std::string>{{"softmax", ""}}));
}

/// What a CUDA kernel says of a call, which needs no GPU; none without kernels. `layout` is that of images.
std::optional<std::string> schedule_of(const char* name, const std::vector<TensorType>& types, const ops::Attributes& attributes,
                                       Layout layout = Layout::contiguous) {
  const ops::Operator& op = ops::registry().find(name);
  if (!op.cuda.describe) return std::nullopt;
  std::vector<Tensor> inputs, outputs;
  for (const TensorType& type : types) {
    inputs.push_back(Tensor::empty(type.shape, type.dtype, {}, type.shape.rank() < 4 ? Layout::contiguous : layout));
  }
  for (const TensorType& type : op.infer_types(types, attributes)) outputs.push_back(Tensor::empty(type.shape, type.dtype));
  return op.cuda.describe({op, attributes, inputs, outputs, {}});
}

TEST(Schedules, OfReductionsSayHowLinesAreRead) {
  const auto of_softmax = [](const Shape& shape, DType dtype, std::int64_t axis) {
    return schedule_of("softmax", {{dtype, shape}}, ops::SoftmaxAttributes{axis});
  };
  const auto of_sum = [](const Shape& shape, const Dims& axes) {
    return schedule_of("sum", {{DType::f32, shape}}, ops::ReductionAttributes{axes, false});
  };
  if (!of_sum({2}, {0})) GTEST_SKIP() << "no CUDA kernels";
  for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
    EXPECT_EQ(of_softmax({64, 1000}, dtype, 1), "held in registers");
    EXPECT_EQ(of_softmax({64, 1001}, dtype, 1), "streamed by elements");
    EXPECT_EQ(of_softmax({2, 1 << 20}, dtype, 1), "streamed in runs, in segments");
    EXPECT_EQ(of_softmax({256, 16, 64, 64}, dtype, 1), "streamed in columns");
  }
  EXPECT_EQ(of_sum({2048, 1000}, {1}), "streamed in runs");
  EXPECT_EQ(of_sum({1000, 64}, {0}), "sums of columns");
  const ops::ReductionAttributes channels{{1}, true};
  EXPECT_EQ(schedule_of("mean", {{DType::f16, {8, 128, 64, 64}}}, channels, Layout::channels_last), "streamed in runs");
}

TEST(Schedules, OfNormsSayHowStatisticsAreFound) {
  const auto of_norm = [](const Shape& shape, Layout layout) {
    const TensorType statistics = {DType::f64, {shape[0] * 4}};
    return std::pair{schedule_of("group_norm", {{DType::f32, shape}}, ops::GroupNormAttributes{.num_groups = 4}, layout),
                     schedule_of("group_norm_backward", {{DType::f32, shape}, {DType::f32, shape}, statistics, statistics},
                                 ops::GroupNormAttributes{.num_groups = 4}, layout)};
  };
  using Ways = decltype(of_norm({}, Layout::contiguous));
  if (!of_norm({2, 4, 8, 8}, Layout::contiguous).first) GTEST_SKIP() << "no CUDA kernels";
  EXPECT_EQ(of_norm({256, 64, 8, 8}, Layout::contiguous), (Ways{"in one launch, slice by slice", "sums first, of rows"}));
  EXPECT_EQ(of_norm({2, 64, 256, 256}, Layout::contiguous), (Ways{"statistics first, of parts", "sums first, of rows"}));
  EXPECT_EQ(of_norm({2, 64, 91, 93}, Layout::contiguous),
            (Ways{"statistics first, of parts; rows in vectors of memory", "sums first, of rows in vectors of memory"}));
  EXPECT_EQ(of_norm({256, 64, 8, 8}, Layout::channels_last), (Ways{"in one launch, whole columns", "in one launch, whole columns"}));
  EXPECT_EQ(of_norm({4, 64, 32, 32}, Layout::channels_last),
            (Ways{"in one launch, columns shared by clusters", "in one launch, columns shared by clusters"}));
  EXPECT_EQ(of_norm({2, 64, 256, 256}, Layout::channels_last), (Ways{"statistics first, of columns", "sums first, of columns"}));
  const auto of_batch_norm = [](const Shape& shape) {
    const TensorType image = {DType::f16, shape}, parameter = {DType::f16, {shape[1]}};
    const TensorType running = {DType::f32, {shape[1]}}, statistics = {DType::f64, {shape[1]}};
    return std::pair{
        schedule_of("batch_norm", {image, parameter, parameter, running, running}, ops::BatchNormAttributes{}, Layout::channels_last),
        schedule_of("batch_norm_backward", {image, image, statistics, statistics}, ops::BatchNormAttributes{}, Layout::channels_last)};
  };
  EXPECT_EQ(of_batch_norm({16, 2048, 8, 8}), (Ways{"in one launch, whole columns", "in one launch, whole columns"}));
  EXPECT_EQ(of_batch_norm({16, 512, 16, 16}), (Ways{"in one launch, whole columns", "sums first, of columns"}));
  EXPECT_EQ(of_batch_norm({8, 256, 32, 32}), (Ways{"statistics first, of columns", "sums first, of columns"}));
  const auto of_rows = [](std::int64_t length) {
    return schedule_of("layer_norm", {{DType::f32, {64, length}}}, ops::LayerNormAttributes{.normalized_rank = 1});
  };
  EXPECT_EQ(of_rows(768), "in one launch, rows held by lanes");
  EXPECT_EQ(of_rows(8192), "in one launch, slice by slice");
}

TEST(Schedules, OfNormsOfSeveralProcessesSayWhatTheseExchange) {
  const auto of_norm = [](const Shape& shape, Layout layout) {
    const TensorType image = {DType::f32, shape}, channels = {DType::f32, {shape[1]}}, statistics = {DType::f64, {shape[1]}};
    return std::pair{
        schedule_of("synchronized_batch_norm", {image, channels, channels, channels, channels}, ops::BatchNormAttributes{}, layout),
        schedule_of("synchronized_batch_norm_backward", {image, image, statistics, statistics}, ops::BatchNormAttributes{}, layout)};
  };
  using Ways = decltype(of_norm({}, Layout::contiguous));
  if (!of_norm({2, 4, 8, 8}, Layout::contiguous).first) GTEST_SKIP() << "no CUDA kernels";
  const char* const forward = "statistics of all processes first";
  EXPECT_EQ(of_norm({2, 4, 8, 8}, Layout::contiguous), (Ways{forward, "sums first, of rows, and exchanged"}));
  EXPECT_EQ(of_norm({16, 64, 4, 4}, Layout::channels_last), (Ways{forward, "sums first, of columns, and exchanged"}));
}

TEST(Schedules, OfPoolsSayHowWindowsAreRead) {
  const auto of_pool = [](const Shape& shape, std::int64_t size, Layout layout) {
    return schedule_of("avg_pool2d", {{DType::f32, shape}}, PoolOptions{.kernel_size = {size, size}, .stride = {size, size}}, layout);
  };
  if (!of_pool({2, 4, 8, 8}, 2, Layout::contiguous)) GTEST_SKIP() << "no CUDA kernels";
  EXPECT_EQ(of_pool({2, 4, 8, 8}, 2, Layout::contiguous), "planes, by a thread each");
  EXPECT_EQ(of_pool({2, 4, 8, 8}, 8, Layout::contiguous), "planes, by a team each, as windows are large");
  EXPECT_EQ(of_pool({2, 4, 8, 8}, 2, Layout::channels_last), "channels in vectors");
  EXPECT_EQ(of_pool({2, 6, 8, 8}, 2, Layout::channels_last), "channels one by one, which fill no vectors");
}

class CudaSchedules : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaSchedules, OfConvolutionsAreTheKernelsThatAreMeant) {
  EXPECT_EQ(schedule_of_convolution({2, 32, 48, 48, 48}, {3, 32, 1, 1, 1}, DType::f16), "narrow product");
  EXPECT_EQ(schedule_of_convolution({32, 1152, 1, 1}, {48, 1152, 1, 1}, DType::f16), "few pixels");
  EXPECT_EQ(schedule_of_convolution({8, 64, 56, 56}, {64, 1, 7, 7}, DType::f16, {.padding = {3}, .groups = 64}), "depthwise, in tiles");
  EXPECT_EQ(schedule_of_convolution({8, 58, 28, 28}, {58, 1, 3, 3}, DType::f16, {.padding = {1}, .groups = 58}), "depthwise, in tiles");
  EXPECT_TRUE(schedule_of_convolution({8, 64, 56, 56}, {64, 64, 3, 3}, DType::f16).starts_with("cuDNN engine "));
  EXPECT_EQ(schedule_of_convolution({2, 3, 5, 6}, {4, 3, 3, 3}, DType::bf16).find("by its definition"), std::string::npos);
}

TEST_F(CudaSchedules, OfFewChannelsOnHopperAreSwept) {
  if (cuda::description(0).find("compute capability 9.0") == std::string::npos) GTEST_SKIP() << "no GPU of Hopper's";
  EXPECT_EQ(schedule_of_convolution({2, 32, 96, 96, 96}, {32, 32, 3, 3, 3}, DType::f16, {.padding = {1}}), "swept over columns");
}

TEST_F(CudaSchedules, OfProgramsSayWhetherTheyAreCompiled) {
  const auto of_program = [](const Shape& shape) {
    Graph graph;
    const Value x = graph.input("x", shape);
    graph.output("y", tanh(x * 2) + x);
    return schedules_of(graph, Device::best()).at("elementwise");
  };
  EXPECT_EQ(of_program({8, 16, 64, 64}), "compiled");
  EXPECT_EQ(of_program({2, 3}), "interpreted, small");
}

TEST_F(CudaSchedules, OfChainsSayWhetherTheyAreOneKernel) {
  const auto of_chain = [](std::int64_t channels) {
    Graph graph;
    const Value x = graph.input("x", {2, 8, 32, 32}), w = graph.input("w", {channels, 8, 3, 3});
    graph.output("y", sigmoid(softmax(conv2d(x, w), 1)));
    return schedules_of(graph, Device::best()).at("chain");
  };
  EXPECT_EQ(of_chain(16), "one kernel around softmax");
  EXPECT_EQ(of_chain(7), "in its parts, around softmax, whose kernel does not take it so");
}

/// Swept convolutions take any program, others what a library may be asked for.
TEST_F(CudaSchedules, OfChainsSayHowTheirConvolutionIsComputed) {
  const auto of_chain = [](const Shape& image, const Shape& weight, bool gated) {
    Graph graph;
    const Value x = graph.input("x", image, DType::f16), w = graph.input("w", weight, DType::f16);
    const Value y = image.rank() == 4 ? conv2d(x, w, {}, {.padding = {1}}) : conv3d(x, w, {}, {.padding = {1}});
    graph.output("y", gated ? y * tanh(y) : relu(y));
    const auto schedules = schedules_of(graph, Device::best());
    return schedules.contains("chain") ? schedules.at("chain") : "";
  };
  EXPECT_TRUE(of_chain({8, 64, 56, 56}, {64, 64, 3, 3}, false).starts_with("around conv2d: cuDNN engine "));
  EXPECT_EQ(of_chain({8, 64, 56, 56}, {64, 64, 3, 3}, true), "");
  if (cuda::capability(0) != 90) GTEST_SKIP() << "no GPU of Hopper's";
  EXPECT_EQ(of_chain({2, 32, 96, 96, 96}, {32, 32, 3, 3, 3}, true), "around conv3d: swept over columns");
}

}  // namespace
}  // namespace frit
