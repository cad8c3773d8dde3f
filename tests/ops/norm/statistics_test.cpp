#include "frit/ops/norm/statistics.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace frit::ops {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

template <class T>
SliceStatistics statistics(const std::vector<T>& values, double eps = 0) {
  return slice_statistics(
      static_cast<std::int64_t>(values.size()), [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }, eps);
}

TEST(Statistics, SumsEveryElementWhateverTheCount) {
  for (std::int64_t n = 0; n < 70; ++n) {
    LaneSums<2> sums;
    sums.add(n, [](std::int64_t i) { return std::array<double, 2>{static_cast<double>(i + 1), 1.0}; });
    EXPECT_EQ(sums.totals(), (std::array<double, 2>{static_cast<double>(n * (n + 1) / 2), static_cast<double>(n)})) << n;
  }
}

TEST(Statistics, RunsAddUp) {
  MomentSums sums(3);
  for (const std::int64_t n : {1, 20, 0, 15, 28}) {
    sums.add(n, [](std::int64_t i) { return i % 2 == 0 ? 3.0f : 5.0f; });
  }
  const Moments moments = sums.moments();
  EXPECT_EQ(moments.count, 64);
  const double fives = 10 + 7 + 14;  // of the runs of 20, 15 and 28
  EXPECT_DOUBLE_EQ(moments.mean, 3 + 2 * fives / 64);
  EXPECT_DOUBLE_EQ(moments.variance, 4 * fives / 64 * (1 - fives / 64));
}

TEST(Statistics, ConstantSliceHasItsValueAsMeanExactly) {
  for (const float value : {3.0f, 0.1f, -1e30f, 1e-38f}) {
    const SliceStatistics found = statistics(std::vector<float>(1001, value), 1);
    EXPECT_EQ(found.mean, static_cast<double>(value));
    EXPECT_EQ(found.rstd, 1);
  }
}

TEST(Statistics, OffsetCostsNoDigits) {
  for (const double offset : {0.0, 1e3, 1e7, 1e15}) {
    const SliceStatistics found = statistics(std::vector<double>{offset + 1, offset + 2, offset + 3, offset + 6});
    EXPECT_DOUBLE_EQ(found.mean, offset + 3);
    EXPECT_DOUBLE_EQ(found.rstd, 1 / std::sqrt(3.5));
  }
}

TEST(Statistics, SquaresDoNotOverflow) {
  EXPECT_DOUBLE_EQ(statistics(std::vector<float>{-1e30f, 1e30f}).rstd, 1 / static_cast<double>(1e30f));
  EXPECT_DOUBLE_EQ(statistics(std::vector<float>{-1e-30f, 1e-30f}).rstd, 1 / static_cast<double>(1e-30f));
  const double largest = std::numeric_limits<float>::max();
  EXPECT_DOUBLE_EQ(statistics(std::vector<float>{static_cast<float>(-largest), static_cast<float>(largest)}).rstd, 1 / largest);
}

TEST(Statistics, InfinityAndNaNSpoilTheSlice) {
  for (const double bad : {inf, -inf, std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::size_t place : {0u, 1u, 17u, 39u}) {
      std::vector<double> values(40, 1);
      values[place] = bad;
      EXPECT_TRUE(std::isnan(statistics(values).rstd)) << bad << " at " << place;
    }
  }
}

TEST(Statistics, NothingHasFiniteStatistics) {
  const SliceStatistics found = statistics(std::vector<float>{}, 0.25);
  EXPECT_EQ(found.mean, 0);
  EXPECT_EQ(found.rstd, 2);
}

}  // namespace
}  // namespace frit::ops
