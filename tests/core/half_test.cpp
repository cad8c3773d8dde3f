#include "frit/core/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace frit {
namespace {

/// What a 16-bit pattern of `mantissa_bits` stands for, from the definition of IEEE 754's binary formats.
double reference_value(std::uint16_t bits, int mantissa_bits) {
  const int bias = (1 << (14 - mantissa_bits)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 2 * bias + 1) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// Round to nearest even by searching all finite values of the format; `table[i]` is the value of pattern i. The pattern after the
/// largest finite one takes the place of infinity, as the rounding of IEEE 754 wants it.
std::uint16_t reference_encode(float value, const std::vector<double>& table) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto above = static_cast<std::size_t>(std::lower_bound(table.begin(), table.end(), magnitude) - table.begin());
  if (above == table.size()) return static_cast<std::uint16_t>(sign | (table.size() - 1));
  if (table[above] == magnitude) return static_cast<std::uint16_t>(sign | above);
  const double down = magnitude - table[above - 1], up = table[above] - magnitude;
  const bool takes_lower = down < up || (down == up && (above - 1) % 2 == 0);
  return static_cast<std::uint16_t>(sign | (takes_lower ? above - 1 : above));
}

template <class T>
class HalfTest : public testing::Test {
 protected:
  static constexpr int mantissa_bits = std::is_same_v<T, Half> ? 10 : 7;
  static constexpr std::uint16_t infinity = std::is_same_v<T, Half> ? 0x7c00 : 0x7f80;

  static T from_bits(unsigned bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    return value;
  }

  static std::vector<double> table() {
    std::vector<double> values;
    for (unsigned bits = 0; bits < infinity; ++bits) values.push_back(reference_value(static_cast<std::uint16_t>(bits), mantissa_bits));
    // One step above the largest finite value.
    values.push_back(2 * values.back() - values[values.size() - 2]);
    return values;
  }
};

using HalfTypes = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(HalfTest, HalfTypes);

TYPED_TEST(HalfTest, EveryPatternHasItsValueAndComesBack) {
  for (unsigned bits = 0; bits <= 0xffff; ++bits) {
    const float value = static_cast<float>(TestFixture::from_bits(bits));
    const double expected = reference_value(static_cast<std::uint16_t>(bits), TestFixture::mantissa_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(value)))) << bits;
      ASSERT_EQ(TypeParam(value).bits & 0x8000u, bits & 0x8000u);
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
      ASSERT_EQ(TypeParam(value).bits, bits);
    }
  }
}

TYPED_TEST(HalfTest, RoundsToNearestEven) {
  const std::vector<double> table = TestFixture::table();
  const auto check = [&](float value) {
    if (std::isnan(value)) return true;
    return TypeParam(value).bits == reference_encode(value, table);
  };
  std::mt19937 generator(1);
  for (int i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    ASSERT_TRUE(check(value)) << value;
  }
  // Every midpoint between neighbours, and the floats next to it.
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    const auto middle = static_cast<float>(table[i] / 2 + table[i + 1] / 2);
    for (const float value : {middle, std::nextafter(middle, INFINITY), std::nextafter(middle, 0.0f)}) {
      ASSERT_TRUE(check(value)) << value;
      ASSERT_TRUE(check(-value)) << -value;
    }
  }
}

TYPED_TEST(HalfTest, NanStaysNan) {
  for (const std::uint32_t payload : {1u, 0x1fffu, 0x2000u, 0xffffu, 0x400000u, 0x7fffffu}) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const auto nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(nan)))) << payload;
    }
  }
}

TYPED_TEST(HalfTest, OverflowBecomesInfinity) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam(inf).bits, TestFixture::infinity);
  EXPECT_EQ(TypeParam(-inf).bits, TestFixture::infinity | 0x8000);
  EXPECT_EQ(static_cast<float>(TypeParam(std::numeric_limits<float>::max())), inf);
  EXPECT_EQ(static_cast<float>(TypeParam(std::numeric_limits<float>::lowest())), -inf);
}

TEST(Half, EdgesOfTheRange) {
  EXPECT_EQ(static_cast<float>(Half(65504.0f)), 65504.0f);
  EXPECT_EQ(static_cast<float>(Half(std::nextafter(65520.0f, 0.0f))), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(Half(65520.0f))));
  EXPECT_EQ(static_cast<float>(Half(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(Half(0x1p-25f).bits, 0);  // a tie, to the even 0
  EXPECT_EQ(Half(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(Half(-0.0f).bits, 0x8000);
}

}  // namespace
}  // namespace frit
