#include "frit/core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include "frit/core/thread_pool.h"

namespace frit {
namespace {

using Words = std::array<std::uint32_t, 4>;

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};

Moments moments_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Moments m;
  for (const double value : values) m.mean += value / count;
  for (const double value : values) m.variance += std::pow(value - m.mean, 2) / count;
  for (const double value : values) {
    m.skewness += std::pow(value - m.mean, 3) / std::pow(m.variance, 1.5) / count;
    m.kurtosis += std::pow(value - m.mean, 4) / std::pow(m.variance, 2) / count;
  }
  return m;
}

// The philox4x32-10 lines of kat_vectors in Random123; its counter is (counter low, counter high, stream low, stream high) here.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: the digits of pi
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88), (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StreamOf, IsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8u);
  EXPECT_NE(stream_of("conv.weight"), stream_of("conv.bias"));
}

class RandomFill : public testing::TestWithParam<DType> {};

TEST_P(RandomFill, DoesNotDependOnTheThreadCount) {
  const int before = thread_count();
  std::vector<double> uniform, normal;
  for (const int threads : {1, 2, 3, 8}) {
    set_thread_count(threads);
    const Tensor tensor = Tensor::empty({37, 1001}, GetParam());
    fill_uniform(tensor, -2, 3, 7, 11);
    if (uniform.empty()) uniform = tensor.to_vector<double>();
    EXPECT_EQ(tensor.to_vector<double>(), uniform) << threads;
    fill_normal(tensor, 1, 2, 7, 11);
    if (normal.empty()) normal = tensor.to_vector<double>();
    EXPECT_EQ(tensor.to_vector<double>(), normal) << threads;
  }
  set_thread_count(before);
}

TEST_P(RandomFill, ElementDependsOnItsIndexAlone) {
  const Tensor large = Tensor::empty({9000}, GetParam()), small = Tensor::empty({10}, GetParam());
  fill_normal(large, 0, 1, 5, 6);
  fill_normal(small, 0, 1, 5, 6);
  EXPECT_EQ(large.slice(0, 0, 10).to_vector<double>(), small.to_vector<double>());
  const Tensor view = Tensor::empty({5, 2}, GetParam()).transpose(0, 1);
  fill_normal(view, 0, 1, 5, 6);
  EXPECT_EQ(view.to_vector<double>(), small.to_vector<double>());
  fill_normal(small, 0, 1, 5, 7);
  EXPECT_NE(view.to_vector<double>(), small.to_vector<double>());
}

TEST_P(RandomFill, UniformMoments) {
  const Tensor tensor = Tensor::empty({400'000}, GetParam());
  fill_uniform(tensor, -1, 3, 42, 0);
  const std::vector<double> values = tensor.to_vector<double>();
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 3);
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 1, 0.01);
  EXPECT_NEAR(m.variance, 16.0 / 12, 0.01);
  EXPECT_NEAR(m.skewness, 0, 0.02);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.02);
}

TEST_P(RandomFill, NormalMoments) {
  const Tensor tensor = Tensor::empty({400'000}, GetParam());
  fill_normal(tensor, 0.5, 2, 42, 0);
  const Moments m = moments_of(tensor.to_vector<double>());
  EXPECT_NEAR(m.mean, 0.5, 0.02);
  EXPECT_NEAR(m.variance, 4, 0.05);
  EXPECT_NEAR(m.skewness, 0, 0.03);
  EXPECT_NEAR(m.kurtosis, 3, 0.05);
}

TEST_P(RandomFill, UniformStaysInTheIntervalWhenRoundingWouldLeaveIt) {
  const Tensor tensor = Tensor::empty({2000}, GetParam());
  struct Interval {
    double low, high;
  };
  // Intervals of a few units in the last place, and ends that the type does not have.
  for (const auto& [low, high] : {Interval{1, 1.01}, Interval{0.1, 0.2}, Interval{-0.2, -0.1}, Interval{-1, 0}, Interval{256, 259}}) {
    fill_uniform(tensor, low, high, 1, 2);
    for (const double value : tensor.to_vector<double>()) {
      ASSERT_GE(value, low);
      ASSERT_LT(value, high);
    }
  }
  fill_uniform(tensor, 2, 2, 1, 2);
  EXPECT_EQ(tensor.to_vector<double>(), std::vector<double>(2000, 2));
}

INSTANTIATE_TEST_SUITE_P(Types, RandomFill, testing::Values(DType::f64, DType::f32, DType::f16, DType::bf16),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

TEST(RandomFillErrors, SayWhatIsWrong) {
  const auto message = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      return error.what();
    }
    return "no error";
  };
  const Tensor integers = Tensor::empty({2}, DType::i32), floats = Tensor::empty({2});
  EXPECT_EQ(message([&] { fill_normal(integers, 0, 1, 0, 0); }), "fill_normal: needs a floating tensor, got i32");
  EXPECT_EQ(message([&] { fill_uniform(floats, 1, 0, 0, 0); }), "fill_uniform: needs finite low <= high, got [1, 0)");
  EXPECT_EQ(message([&] { fill_uniform(floats, 0, INFINITY, 0, 0); }), "fill_uniform: needs finite low <= high, got [0, inf)");
  EXPECT_EQ(message([&] { permutation(-1, 0, 0); }), "permutation: needs a count of 0 or more, got -1");
}

TEST(Permutation, HoldsEachIndexOnce) {
  for (const std::int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::int64_t> order = permutation(count, 3, 4);
    EXPECT_EQ(order, permutation(count, 3, 4));
    std::sort(order.begin(), order.end());
    ASSERT_EQ(static_cast<std::int64_t>(order.size()), count);
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_NE(permutation(1000, 3, 4), permutation(1000, 3, 5));
  EXPECT_NE(permutation(1000, 3, 4), permutation(1000, 4, 4));
}

TEST(Permutation, AllOrdersAreEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> counts;
  constexpr int draws = 24'000;
  for (std::uint64_t stream = 0; stream < draws; ++stream) ++counts[permutation(4, 9, stream)];
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += std::pow(count - draws / 24.0, 2) / (draws / 24.0);
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, p = 0.001
}

}  // namespace
}  // namespace frit
