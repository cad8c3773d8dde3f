#include "frit/ops/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "frit/ops/cpu/lanes.h"
#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/elementwise/unary_functors.h"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

/// How far `actual` is from the exact value, in units of the last place of a float there.
double error_in_places(float actual, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (actual == rounded || (std::isnan(actual) && std::isnan(exact))) return 0;
  const float place = std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity()) - std::abs(rounded);
  const double error = std::abs(static_cast<double>(actual) - exact) / static_cast<double>(place);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

/// Calls body with floats of either sign, subnormal numbers, infinities and NaN included: every so many-th in the order of their bits, all
/// with FRIT_FLOAT_STEP=1.
template <class Body>
void for_floats(const Body& body) {
  const char* const chosen = std::getenv("FRIT_FLOAT_STEP");
  const std::uint64_t step = chosen == nullptr ? 4999 : std::strtoull(chosen, nullptr, 10);
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += step) body(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
}

/// A function of a float and of vectors of them.
struct Function {
  const char* name;
  float (*actual)(float);
  simd::Lanes (*of_lanes)(simd::Lanes);  ///< or null
  double (*exact)(double);
  double places;  ///< the largest error
  float from, to;

  template <class Actual>
  Function(const char* name_of, const Actual& function, double (*exactly)(double), double most_places, float begin = -INFINITY,
           float end = INFINITY)
      : name(name_of), actual(function), of_lanes(nullptr), exact(exactly), places(most_places), from(begin), to(end) {
    if constexpr (std::is_convertible_v<Actual, simd::Lanes (*)(simd::Lanes)>) of_lanes = function;
  }
};

double exact_logistic(double x) { return 1 / (1 + std::exp(-x)); }
double exact_softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double exact_normal(double x) { return std::erfc(x * -0.70710678118654752440) / 2; }

/// Below -87 a logistic function is subnormal, where it is 0 from -88.8 on.
const Function functions[] = {
    {"exp", [](auto x) { return exponential(x); }, [](double x) { return std::exp(x); }, 1},
    {"log", [](auto x) { return logarithm(x); }, [](double x) { return std::log(x); }, 1},
    {"sin", [](float x) { return sine(x); }, [](double x) { return std::sin(x); }, 2},
    {"cos", [](float x) { return cosine(x); }, [](double x) { return std::cos(x); }, 2},
    {"tanh", [](auto x) { return hyperbolic_tangent(x); }, [](double x) { return std::tanh(x); }, 2},
    {"erf", [](auto x) { return error_function(x); }, [](double x) { return std::erf(x); }, 2},
    {"expm1", [](auto x) { return exponential_minus_one(x); }, [](double x) { return std::expm1(x); }, 3, -INFINITY, 0},
    {"log1p", [](auto x) { return log_one_plus(x); }, [](double x) { return std::log1p(x); }, 3, 0, 1},
    {"logistic", [](auto x) { return logistic(x); }, exact_logistic, 3, -87},
    {"softplus", [](auto x) { return Softplus<decltype(x)>(SoftplusAttributes{})(x); }, exact_softplus, 3, -87},
    {"silu", [](auto x) { return Silu<decltype(x)>{}(x); }, [](double x) { return x * exact_logistic(x); }, 3, -80},
    {"mish", [](auto x) { return Mish<decltype(x)>{}(x); }, [](double x) { return x * std::tanh(exact_softplus(x)); }, 4, -40},
    {"gelu", [](auto x) { return GeluErf<decltype(x)>{}(x); }, [](double x) { return x * exact_normal(x); }, 12, -4},
};

TEST(VectorMath, IsWithinAFewUnitsInTheLastPlace) {
  for (const Function& function : functions) {
    double largest = 0;
    float place = 0;
    int count = 0;
    for_floats([&](float x) {
      if (x < function.from || x > function.to) return;
      const double exact = function.exact(static_cast<double>(x));
      const auto check = [&](float actual) {
        const double error = error_in_places(actual, exact);
        if (error > largest) largest = error, place = x;
      };
      check(function.actual(x));
      if (function.of_lanes != nullptr && count++ % 8 == 0) check(function.of_lanes(x).values[simd::lane_vectors - 1][0]);
    });
    EXPECT_LE(largest, function.places) << function.name << " of " << place;
  }
}

TEST(VectorMath, HasPowersWithinAUnitInTheLastPlace) {
  double largest = 0;
  std::pair<float, float> place;
  std::uint64_t count = 0;
  for_floats([&](float base) {
    // Exponents that give results of all sizes, small ones, and whole ones.
    const auto at = static_cast<float>(count++ % 301) - 150;
    for (const float exponent : {at / std::log2(std::abs(base)), at / 75, std::round(at / 15)}) {
      const double error =
          error_in_places(Power<float>{}(base, exponent), std::pow(static_cast<double>(base), static_cast<double>(exponent)));
      if (error <= largest) continue;
      largest = error, place = {base, exponent};
    }
  });
  EXPECT_LE(largest, 0.6) << place.first << " to the " << place.second;
}

TEST(VectorMath, HasThePowersOfAwkwardNumbers) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float numbers[] = {0,    0.5f,  1,         1.5f,        2,        3,     4,     9,        10,     100,
                           0.1f, 1e-3f, 8388607.5, 16777215.0f, 33554432, 1e10f, 3e38f, infinity, 1e-38f, 1e-45f};
  std::vector<float> all = {nan};
  for (const float x : numbers) all.insert(all.end(), {x, -x});
  for (const float base : all) {
    for (const float exponent : all) {
      const double expected = std::pow(static_cast<double>(base), static_cast<double>(exponent));
      const float actual = Power<float>{}(base, exponent), rounded = static_cast<float>(expected);
      // Exact where the result is a float.
      EXPECT_LE(error_in_places(actual, expected), static_cast<double>(rounded) == expected ? 0 : 0.6) << base << " to the " << exponent;
      if (!std::isnan(actual)) {
        EXPECT_EQ(std::signbit(actual), std::signbit(rounded)) << base << " to the " << exponent;
      }
    }
  }
}

/// Between others of its kind, and next to those for which there is no vector code.
TEST(VectorMath, HasSinesThatDoNotDependOnTheirNeighbours) {
  std::vector<float> x;
  for (int i = 0; i < 9001; ++i) x.push_back(static_cast<float>(i % 2 == 0 ? i : -i) * (i % 3 == 0 ? 1e-3f : 58.2f));  // up to 2^19
  std::vector<float> with_others = x;
  for (std::size_t i = 700; i < x.size(); i += 2000) with_others[i] = i % 4000 == 700 ? 1e30f : std::numeric_limits<float>::quiet_NaN();
  const auto size = static_cast<std::int64_t>(x.size());
  for (const char* const name : {"sin", "cos"}) {
    const std::vector<float> usual = run(name, {Tensor::from(x, {size})})[0].to_vector<float>();
    const std::vector<float> mixed = run(name, {Tensor::from(with_others, {size})})[0].to_vector<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float alone = name[0] == 's' ? Sin<float>{}(with_others[i]) : Cos<float>{}(with_others[i]);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(mixed[i]), std::bit_cast<std::uint32_t>(alone)) << name << " of " << with_others[i];
      if (x[i] == with_others[i]) {
        EXPECT_EQ(mixed[i], usual[i]) << name << " of " << x[i];
      }
    }
  }
}

/// Wherever an element lies in a run, its bits are the same.
TEST(VectorMath, DoesNotDependOnTheElementsPlace) {
  std::vector<float> x;
  for (int i = 0; i < 200; ++i) x.push_back(static_cast<float>(i) * 0.07f - 7);
  for (const char* const name : {"exp", "silu", "mish", "erf"}) {
    const std::vector<float> all = run(name, {Tensor::from(x, {200})})[0].to_vector<float>();
    for (std::size_t begin = 0; begin < x.size(); begin += 23) {
      const std::vector<float> some(x.begin() + static_cast<std::ptrdiff_t>(begin), x.end());
      const std::vector<float> actual = run(name, {Tensor::from(some, {std::ssize(some)})})[0].to_vector<float>();
      EXPECT_TRUE(std::equal(actual.begin(), actual.end(), all.begin() + static_cast<std::ptrdiff_t>(begin))) << name << " from " << begin;
    }
  }
}

TEST(VectorMath, KeepsNaN) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Function& function : functions) {
    EXPECT_TRUE(std::isnan(function.actual(nan))) << function.name;
    EXPECT_TRUE(function.of_lanes == nullptr || std::isnan(function.of_lanes(nan).values[0][0])) << function.name;
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
  EXPECT_TRUE(std::signbit(sine(-0.0f)));
  EXPECT_EQ(cosine(-0.0f), 1);
  EXPECT_TRUE(std::isnan(sine(infinity)));
  EXPECT_TRUE(std::isnan(cosine(-infinity)));
}

}  // namespace
}  // namespace frit::ops
