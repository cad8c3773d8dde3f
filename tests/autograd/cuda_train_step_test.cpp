#include <gtest/gtest.h>

#include "autograd/small_network.h"
#include "frit/core/cuda/device.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"

namespace frit {
namespace {

constexpr Device gpu{DeviceKind::cuda, 0};

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
  const std::vector<double> expected = network.losses(Device::cpu(), 30), found = network.losses(gpu, 30);
  EXPECT_LT(found.back(), 0.7 * found.front());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << "step " << i;
}

TEST_F(CudaTrainStep, TwoDeterministicRunsAreBitIdentical) {
  const Network network;
  EXPECT_EQ(network.losses(gpu, 20), network.losses(gpu, 20));
}

TEST_F(CudaTrainStep, AllocatesNothingOverAThousandSteps) {
  const Network network;
  TrainStep step(network.loss, Adam{}, gpu);
  for (int i = 0; i < 2; ++i) step(network.batch);
  const AllocatorStatistics before = allocator_of(gpu).statistics();
  for (int i = 0; i < 1000; ++i) step(network.batch);
  const AllocatorStatistics after = allocator_of(gpu).statistics();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.source_allocations, before.source_allocations);
  EXPECT_EQ(step.steps(), 1002);
}

TEST_F(CudaTrainStep, LearnsInHalvesAsTheCpuDoes) {
  const Network network;
  for (const auto& [precision, tolerance] : {std::pair(DType::f16, 1e-2), std::pair(DType::bf16, 5e-2)}) {
    const std::vector<double> expected = network.losses(Device::cpu(), 30), found = network.losses(gpu, 30, precision);
    EXPECT_LT(found.back(), 0.7 * found.front());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << precision << " step " << i;
    EXPECT_EQ(network.losses(gpu, 10, precision), network.losses(gpu, 10, precision)) << precision;
  }
}

TEST_F(CudaTrainStep, SkipsAnOverflow) { expect_an_overflow_to_be_skipped(gpu); }

}  // namespace
}  // namespace frit
