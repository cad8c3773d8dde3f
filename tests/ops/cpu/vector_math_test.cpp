#include "frit/ops/cpu/vector_math.h"

#include <gtest/gtest.h>

namespace frit::ops {
namespace {

/// How far `actual` is from the exact value, in units of the last place of a float there.
double error_in_places(float actual, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (actual == rounded || (std::isnan(actual) && std::isnan(exact))) return 0;
  const float place = std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity()) - std::abs(rounded);
  return std::abs(static_cast<double>(actual) - exact) / static_cast<double>(place);
}

TEST(VectorMath, IsWithinTwoUnitsInTheLastPlace) {
  // Every 997th float, of either sign, subnormal numbers and NaN included.
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 997) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_LE(error_in_places(vector_exp(x), std::exp(static_cast<double>(x))), 2) << x;
    ASSERT_LE(error_in_places(vector_log(x), std::log(static_cast<double>(x))), 2) << x;
  }
}

TEST(VectorMath, IsExactAtTheAwkwardPoints) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(vector_exp(0.0f), 1);
  EXPECT_EQ(vector_exp(-0.0f), 1);
  EXPECT_EQ(vector_exp(infinity), infinity);
  EXPECT_EQ(vector_exp(-infinity), 0);
  EXPECT_TRUE(std::isnan(vector_exp(nan)));
  EXPECT_EQ(vector_exp(-104.0f), 0);
  EXPECT_EQ(vector_exp(88.8f), infinity);
  EXPECT_EQ(vector_log(1.0f), 0);
  EXPECT_EQ(vector_log(0.0f), -infinity);
  EXPECT_EQ(vector_log(-0.0f), -infinity);
  EXPECT_EQ(vector_log(infinity), infinity);
  EXPECT_TRUE(std::isnan(vector_log(-infinity)));
  EXPECT_TRUE(std::isnan(vector_log(-1e-40f)));
  EXPECT_TRUE(std::isnan(vector_log(nan)));
}

}  // namespace
}  // namespace frit::ops
