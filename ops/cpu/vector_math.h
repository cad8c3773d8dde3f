#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "frit/ops/cpu/polynomial.h"

// Functions without branches or calls, so that a loop over them becomes vector code. Float only: for double they are the library's. They
// keep NaN and are right at 0, infinities and subnormal numbers; the error is below 2 units in the last place. The coefficients of exp and
// log are those of Cephes (S. Moshier), expf.c and logf.c; the other polynomials have the least relative error.

namespace frit::ops {

// What vector_exp takes: adding `rounding` rounds to an integer, held in the low bits. At the ends the result is 0 and infinity.
inline constexpr float rounding = 0x1.8p23f, most_exponent = 104;

/// x in [-most_exponent, most_exponent]; any of these for NaN. As integers: GCC would branch on a choice of floats.
inline float within_exponents(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t magnitude = std::min(bits & 0x7fffffff, std::bit_cast<std::int32_t>(most_exponent));
  return std::bit_cast<float>(magnitude | (bits & std::numeric_limits<std::int32_t>::min()));
}
/// y 2^n for rounded = rounding + n: times two powers, each a normal number.
inline float times_power_of_two(float y, float rounded) {
  const std::int32_t whole = std::bit_cast<std::int32_t>(rounded) - std::bit_cast<std::int32_t>(rounding);
  const std::int32_t half = whole >> 1;
  return y * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((whole - half + 127) << 23);
}
/// The result, or NaN if x is.
inline float nan_of(float result, float x) { return result + (x == x ? 0.0f : x); }

template <class T>
T vector_exp(T x) {
  if constexpr (is_single<T>) {
    const T limited = within_exponents(x);
    const T rounded = multiply_add(limited, T(1.44269504f), T(rounding));
    const T n = rounded - rounding;
    const T r = multiply_add(n, T(2.12194440e-4f), multiply_add(n, T(-0.693359375f), limited));  // x - n log(2), the first product exact
    const T p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
    return nan_of(times_power_of_two(multiply_add(p, r * r, r) + 1.0f, rounded), x);
  } else {
    return std::exp(x);
  }
}

/// A positive number as (1 + r) 2^e, with 1 + r in [sqrt(1/2), sqrt(2)).
struct Scaled {
  float r, e;

  explicit Scaled(float x) {
    // The exponent of the factor that makes a subnormal x normal. Masks and sums instead of choices: GCC would branch.
    const std::int32_t raised = 25 & -static_cast<std::int32_t>(x < std::numeric_limits<float>::min());
    const float normal = x * std::bit_cast<float>((raised + 127) << 23);
    const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(normal) - 0x3f3504f3u);  // wraps for negative x
    r = std::bit_cast<float>((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
    e = static_cast<float>((bits >> 23) - raised);
  }
};

inline float vector_log(float x) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto [r, e] = Scaled(x);
  const float p = polynomial(r, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                             -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  const float square = r * r;
  const float y = multiply_add(-0.5f, square, multiply_add(e, -2.12194440e-4f, p * r * square));
  // y is finite for every x.
  const float special =
      (x < infinity ? 0.0f : x) + (x == 0.0f ? -infinity : 0.0f) + (x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  return multiply_add(e, 0.693359375f, r + y) + special;
}

/// What vector_sin and vector_cos take: no NaN.
inline bool is_usual_angle(float x) { return std::abs(x) <= 0x1p19f; }

/// sin(angle + quadrant pi / 2) for a usual angle that is not negative, where quadrant is 0 or 1.
inline float sine_from(float angle, std::int32_t quadrant) {
  constexpr float round = 0x1.8p23f;
  const float rounded = multiply_add(angle, 0.636619772f, round);
  // In double the product with the first 33 bits of pi / 2 is exact, so that r is right next to its multiples, too.
  const double n = static_cast<double>(rounded - round);
  const auto r = static_cast<float>(static_cast<double>(angle) - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34);
  const float square = r * r;
  const float odd = polynomial(square, 2.71373528e-6f, -1.98388268e-4f, 8.33332818e-3f, -1.66666672e-1f);
  const float sine = multiply_add(odd * square, r, r);
  const float cosine = polynomial(square, 2.43896684e-5f, -1.38869206e-3f, 4.16666381e-2f, -0.5f, 1.0f);
  const std::int32_t quarter = std::bit_cast<std::int32_t>(rounded) + quadrant;  // but for a multiple of 4
  const float magnitude = (quarter & 1) != 0 ? cosine : sine;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) ^ (static_cast<std::uint32_t>(quarter & 2) << 30));
}

inline float vector_sin(float x) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(sine_from(std::abs(x), 0)) ^ sign);
}

inline float vector_cos(float x) { return sine_from(std::abs(x), 1); }

/// base to the exponent, as std::pow gives it at zeros, infinities and NaN. Computed in double, so that a result that is a float is exact.
inline float vector_pow(float base, float exponent) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float magnitude = std::abs(base);
  const auto [r, finite_e] = Scaled(magnitude);
  const float positive_e = magnitude == 0 ? -infinity : finite_e, e = magnitude < infinity ? positive_e : magnitude;
  // log2(1 + r) / r; the terms with r^6 and above are so small that float does for them.
  const float square = r * r;
  const float even = polynomial(square, 0.077360190413945054f, 0.14475234849357851f, 0.15876931711606521f, 0.20617538607157995f);
  const float odd = polynomial(square, -0.1428360398123267f, -0.14315772485406311f, -0.18030045166635983f);
  const auto x = static_cast<double>(r);
  const double p = polynomial(x, static_cast<double>(multiply_add(odd, r, even)), -0.24045317274346334, 0.28853729279433343,
                              -0.3606736746943538, 0.4808983614022368, -0.72134752086945686, 1.4426950408686934);
  const double power = static_cast<double>(exponent) * multiply_add(p, x, static_cast<double>(e));
  constexpr double round = 0x1.8p52 + 1023;
  const double rounded = power + round, f = power - (rounded - round);
  const double q = polynomial(f, 0.00015353342200932584, 0.0013398900254717012, 0.0096184376073211019, 0.055503324095648364,
                              0.24022647910195158, 0.69314720288083753, 1.0);
  const auto result = static_cast<float>(q * std::bit_cast<double>(std::bit_cast<std::uint64_t>(rounded) << 52));
  const auto approximate = static_cast<float>(power);
  const float not_small = approximate < -200 ? 0.0f : result, not_large = approximate > 200 ? infinity : not_small;
  const float positive = ((magnitude == 1) | (exponent == 0)) ? 1.0f : not_large;  // of NaN too
  // Of a base below zero: the sign that an odd exponent gives, and NaN for one that is not whole.
  const float half = exponent * 0.5f;
  const bool is_whole = std::floor(exponent) == exponent, is_odd = is_whole & (std::floor(half) != half);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(base) & (is_odd ? 0x80000000u : 0u);
  const float with_sign = std::bit_cast<float>(std::bit_cast<std::uint32_t>(positive) ^ sign);
  const bool is_real = is_whole | !(base < 0) | !(base > -infinity);
  return is_real ? with_sign : std::numeric_limits<float>::quiet_NaN();
}

inline double vector_log(double x) { return std::log(x); }

}  // namespace frit::ops
