#include "frit/core/timer.h"

#include <gtest/gtest.h>

namespace frit {
namespace {

TEST(Timer, GivesOneTimeForEachPieceAndThenForgets) {
  Timer timer(Device::cpu());
  int calls = 0;
  for (int i = 0; i < 3; ++i) timer.time([&] { ++calls; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(timer.take().size(), 3u);
  EXPECT_TRUE(timer.take().empty());
}

TEST(TimerCuda, TimesWorkOnTheComputeStream) {
  if (Device::best() == Device::cpu()) GTEST_SKIP() << "no CUDA device";
  Timer timer(Device::best());
  const Tensor tensor = Tensor::zeros({1 << 20}, DType::f32, Device::best()), other = tensor.clone();
  for (int i = 0; i < 3; ++i) timer.time([&] { copy(other, tensor); });
  const std::vector<double> times = timer.take();
  ASSERT_EQ(times.size(), 3u);
  for (const double time : times) EXPECT_GT(time, 0);
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2}, 0.5), 1.5);
  EXPECT_EQ(quantile({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 0.1), 2);
  EXPECT_EQ(quantile({7}, 0.9), 7);
  EXPECT_EQ(quantile({1, 2, 3}, 1), 3);
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(quantile({1}, 1.5), Error);
}

TEST(Marks, CountFromTheFirst) {
  Marks marks(Device::cpu());
  EXPECT_TRUE(marks.take().empty());
  for (int i = 0; i < 3; ++i) marks.mark();
  const std::vector<double> times = marks.take();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0], 0);
  EXPECT_LE(times[1], times[2]);
  marks.mark();
  EXPECT_EQ(marks.take(), std::vector<double>{0}) << "started over";
}

}  // namespace
}  // namespace frit
