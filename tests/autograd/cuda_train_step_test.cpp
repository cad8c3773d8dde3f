#include <gtest/gtest.h>

#include <limits>

#include "autograd/small_network.h"
#include "first_gpu.h"
#include "frit/core/cuda/device.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"
#include "frit/core/readback.h"

namespace frit {
namespace {

class CudaTrainStep : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    set_numerics({.tf32 = false, .deterministic = true});
  }
  void TearDown() override { set_numerics({}); }
};

TEST_F(CudaTrainStep, LearnsAsTheCpuDoes) {
  const Network network;
  const std::vector<double> expected = network.losses(Device::cpu(), 30), found = network.losses(first_gpu, 30);
  EXPECT_LT(found.back(), 0.7 * found.front());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << "step " << i;
}

TEST_F(CudaTrainStep, TwoDeterministicRunsAreBitIdentical) {
  const Network network;
  EXPECT_EQ(network.losses(first_gpu, 20), network.losses(first_gpu, 20));
}

TEST_F(CudaTrainStep, AccumulatesAndGuardsAsTheCpuDoes) {
  const Network network;
  Bindings broken = network.batch;
  broken["image"] = Tensor::full({16, 2, 8, 8}, std::numeric_limits<double>::infinity());
  const auto weights = [&](Device device) {
    TrainStep step(network.loss, Sgd{.learning_rate = 0.1}, device, {.clip_norm = 0.5, .accumulate = 2, .guarded = true});
    for (int i = 0; i < 5; ++i) step.start(network.batch);
    step.start(broken);
    step.start(network.batch);  // the host is a step late
    EXPECT_EQ(step.steps(), 2);
    step.return_to(5);
    for (int i = 0; i < 3; ++i) step.start(network.batch);
    EXPECT_EQ(step.steps(), 4);
    return step.state().at("w").to_vector<double>();
  };
  const std::vector<double> expected = weights(Device::cpu()), found = weights(first_gpu);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
}

TEST_F(CudaTrainStep, AllocatesNothingOverAThousandSteps) {
  const Network network;
  TrainStep step(network.loss, Adam{}, first_gpu);
  for (int i = 0; i < 2; ++i) step(network.batch);
  const AllocatorStatistics before = allocator_of(first_gpu).statistics();
  for (int i = 0; i < 1000; ++i) step(network.batch);
  const AllocatorStatistics after = allocator_of(first_gpu).statistics();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.source_allocations, before.source_allocations);
  EXPECT_EQ(step.steps(), 1002);
}

TEST_F(CudaTrainStep, StartedStepsAreReadLateAndLearnTheSame) {
  const Network network;
  const std::vector<double> expected = network.losses(first_gpu, 20);
  TrainStep step(network.loss, Adam{.learning_rate = 1e-2}, first_gpu, {.clip_norm = 1.0});
  Readback readbacks[2];
  std::vector<double> found;
  for (std::size_t i = 0; i < 20; ++i) {
    readbacks[i % 2].start(step.start(network.batch));
    if (i > 0) found.push_back(readbacks[(i + 1) % 2].get().item());
  }
  found.push_back(readbacks[1].get().item());
  EXPECT_EQ(found, expected);
}

TEST_F(CudaTrainStep, TakesTheMemoryThatItsPlanPredicts) {
  Graph graph;
  const Value image = graph.input("image", {64, 8, 64, 64});
  const Value w = graph.variable("w", {DType::f32, {32, 8, 3, 3}}, normal(), true);
  const Value y = relu(conv2d(image, w));
  const Value loss = mean_squared_error(y, graph.input("target", y.shape()));
  const Bindings batch = {{"image", Tensor::full({64, 8, 64, 64}, 0.5, DType::f32, first_gpu)},
                          {"target", Tensor::full(y.shape(), 0.25, DType::f32, first_gpu)}};
  Allocator& allocator = allocator_of(first_gpu);
  const std::size_t before = allocator.statistics().in_use;
  TrainStep step(loss, Adam{}, first_gpu);
  allocator.reset_peaks();
  for (int i = 0; i < 5; ++i) step.start(batch);
  const auto predicted =
      static_cast<double>(step.compile({{"image", image.type()}, {"target", {DType::f32, y.shape()}}}).predicted_bytes());
  const auto measured = static_cast<double>(allocator.statistics().peak_in_use - before);
  EXPECT_GT(predicted, 64e6);
  EXPECT_NEAR(measured, predicted, 0.02 * predicted);
}

TEST_F(CudaTrainStep, LearnsInHalvesAsTheCpuDoes) {
  const Network network;
  for (const auto& [precision, tolerance] : {std::pair(DType::f16, 1e-2), std::pair(DType::bf16, 5e-2)}) {
    const std::vector<double> expected = network.losses(Device::cpu(), 30), found = network.losses(first_gpu, 30, precision);
    EXPECT_LT(found.back(), 0.7 * found.front());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << precision << " step " << i;
    EXPECT_EQ(network.losses(first_gpu, 10, precision), network.losses(first_gpu, 10, precision)) << precision;
  }
}

TEST_F(CudaTrainStep, CastsAndUpdatesAllParametersAtOnce) {
  const Network network;
  TrainStep step(network.loss, Adam{}, first_gpu, {.precision = DType::f16});
  std::map<std::string, std::size_t> most;  // calls in a step, by operator
  for (const graph::Step& s : step.compile({{"image", {DType::f32, {16, 2, 8, 8}}}, {"label", {DType::i64, {16}}}}).steps()) {
    most[s.op->name] = std::max(most[s.op->name], s.calls.size());
  }
  EXPECT_EQ(most["adam_update"], 2u);
  EXPECT_GE(most["cast"], 2u);
}

TEST_F(CudaTrainStep, SkipsAnOverflow) { expect_an_overflow_to_be_skipped(first_gpu); }

}  // namespace
}  // namespace frit
