#include "frit/ops/cpu/bfloat_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace frit::ops {
namespace {

constexpr std::int64_t lanes = simd::lanes<float>;

struct Case {
  const char* name;
  std::vector<Run> runs;
  std::int64_t positions;
  std::int64_t distance;  ///< between positions, or 0: it grows
  int vectors;
  bool accumulate = false, biased = false, rectified = false, spread = false;
};

std::vector<float> noise(std::int64_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; ++i) {
    result.push_back(static_cast<float>(BFloat16(static_cast<float>(generator()) / 2147483648.0f - 1)));
  }
  return result;
}

std::vector<BFloat16> in_bfloat(const std::vector<float>& numbers) {
  std::vector<BFloat16> result;
  std::transform(numbers.begin(), numbers.end(), std::back_inserter(result), [](float x) { return BFloat16(x); });
  return result;
}

class BfloatProducts : public testing::TestWithParam<Case> {
 protected:
  void expect_sums(BfloatInstructions instructions) {
    if (!has_bfloat_instructions(instructions)) GTEST_SKIP() << "a processor without these instructions, or not compiled for x86-64-v4";
    const Case& c = GetParam();
    const std::int64_t width = c.vectors * lanes, c_stride = width + lanes;
    std::int64_t depth = 0, packed_depth = 0, reach = 0;
    for (const auto& [offset, length] : c.runs) {
      depth += length, packed_depth += whole_bfloat_steps(length);
      reach = std::max(reach, offset + length);
    }
    std::vector<std::int64_t> places(1, 0), c_places;
    for (std::int64_t i = 1; i < c.positions; ++i) places.push_back(places.back() + (c.distance != 0 ? c.distance : i % 5 + 3));
    // Of the size that is read, so that sanitizers see what is not.
    const std::vector<float> a = noise(places.back() + reach, 1), b = noise(depth * width, 2), bias = noise(width, 3);
    const std::vector<float> before = noise(c.positions * c_stride, 4), addend = noise(c.positions * c_stride, 5);
    const std::vector<BFloat16> source = in_bfloat(a);
    std::vector<BFloat16> packed(static_cast<std::size_t>(packed_depth * width));
    pack_bfloat_steps(c.runs, b.data(), c.vectors, packed.data());
    std::vector<const BFloat16*> positions;
    for (const std::int64_t place : places) positions.push_back(source.data() + place);
    for (std::int64_t i = c.positions; i-- > 0;) c_places.push_back(i * c_stride);
    std::vector<float> result = before;
    RunProduct<float, BFloat16> product{.runs = c.runs,
                                        .a = positions,
                                        .b = packed.data(),
                                        .vectors = c.vectors,
                                        .c = result.data(),
                                        .c_stride = c_stride,
                                        .accumulate = c.accumulate};
    if (c.spread) product.c_places = c_places.data();
    if (c.biased) product.bias = bias.data();
    if (c.rectified) product.rectifier = {addend.data(), -1.5f, 2.5f};
    multiply_by(instructions, product);
    std::vector<float> expected = before;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      for (std::int64_t column = 0; column < width; ++column) {
        const auto place = static_cast<std::size_t>((c.spread ? c_places[i] : static_cast<std::int64_t>(i) * c_stride) + column);
        double sum = c.accumulate ? before[place] : c.biased ? bias[static_cast<std::size_t>(column)] : 0.0;
        std::int64_t row = 0;
        for (const auto& [offset, length] : c.runs) {
          for (std::int64_t k = 0; k < length; ++k, ++row) {
            sum += static_cast<double>(a[static_cast<std::size_t>(places[i] + offset + k)]) *
                   static_cast<double>(b[static_cast<std::size_t>(row * width + column)]);
          }
        }
        if (c.rectified) sum = std::clamp(sum + static_cast<double>(addend[place]), -1.5, 2.5);
        expected[place] = static_cast<float>(sum);
      }
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
      ASSERT_NEAR(result[i], expected[i], 1e-5 * std::sqrt(static_cast<double>(depth))) << "element " << i;
    }
  }
};

TEST_P(BfloatProducts, OfAvx512AreTheSums) { expect_sums(BfloatInstructions::avx512); }
TEST_P(BfloatProducts, OfAmxAreTheSums) { expect_sums(BfloatInstructions::amx); }

INSTANTIATE_TEST_SUITE_P(All, BfloatProducts,
                         testing::Values(Case{"one_element", {{0, 1}}, 1, 1, 1}, Case{"one_tile", {{0, 32}}, 16, 32, 1},
                                         Case{"tiles", {{0, 64}}, 64, 64, 2}, Case{"few_rows", {{0, 96}}, 3, 100, 2},
                                         Case{"rows_left_over", {{0, 64}}, 49, 64, 2},
                                         Case{"odd_runs", {{0, 21}, {40, 7}, {60, 33}}, 37, 3, 2},
                                         Case{"uneven_positions", {{0, 96}, {128, 32}}, 50, 0, 2},
                                         Case{"uneven_odd_runs", {{3, 5}, {11, 63}}, 18, 0, 1}, Case{"deep", {{0, 512}}, 40, 512, 2},
                                         Case{"with_bias", {{0, 64}}, 20, 64, 2, false, true}, Case{"added", {{0, 64}}, 33, 64, 2, true},
                                         Case{"rectified", {{0, 9}, {16, 32}}, 33, 48, 2, false, true, true},
                                         Case{"spread", {{0, 32}}, 35, 32, 1, true, false, true, true}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace frit::ops
