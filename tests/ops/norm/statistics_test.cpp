#include "frit/ops/norm/statistics.h"

#include <gtest/gtest.h>

namespace frit::ops {
namespace {

TEST(Statistics, SumsEveryTermWhateverTheCount) {
  for (std::int64_t n = 0; n < 70; ++n) {
    EXPECT_EQ(sum_in_lanes(n, [](std::int64_t i) { return static_cast<double>(i + 1); }), static_cast<double>(n * (n + 1) / 2)) << n;
  }
}

TEST(Statistics, MomentsOfNothingAreFinite) {
  const SliceStatistics found = statistics_of(moments_of(0, 0, 0, 0), 0.25);
  EXPECT_EQ(found.mean, 0);
  EXPECT_EQ(found.rstd, 2);
}

}  // namespace
}  // namespace frit::ops
