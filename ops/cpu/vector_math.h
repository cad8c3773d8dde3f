#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// exp and log without branches or calls, so that a loop over them becomes vector code. Float only: for double they are the library's.
// Both keep NaN and are right at 0, infinities and subnormal numbers; the error is below 2 units in the last place. The coefficients are
// those of Cephes (S. Moshier), expf.c and logf.c.

namespace frit::ops {

/// a * b + c, rounded once where the processor can.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

inline float vector_exp(float x) {
  constexpr float round = 0x1.8p23f;  // adding it rounds to an integer, held in the low bits
  const float nan = x == x ? 0.0f : x;
  // x in [-104, 104], at whose ends the result is 0 and infinity. As integers: GCC would branch on a choice of floats.
  const auto bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t magnitude = std::min(bits & 0x7fffffff, std::bit_cast<std::int32_t>(104.0f));
  x = std::bit_cast<float>(magnitude | (bits & std::numeric_limits<std::int32_t>::min()));
  const float rounded = multiply_add(x, 1.44269504f, round);
  const float n = rounded - round;
  const float r = multiply_add(n, 2.12194440e-4f, multiply_add(n, -0.693359375f, x));  // x - n log(2), the first product exact
  float p = 1.9875691500e-4f;
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  const float y = multiply_add(p, r * r, r) + 1.0f;
  // 2^n as a product of two powers, each a normal number.
  const std::int32_t whole = std::bit_cast<std::int32_t>(rounded) - std::bit_cast<std::int32_t>(round);
  const std::int32_t half = whole >> 1;
  return y * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((whole - half + 127) << 23) + nan;
}

inline float vector_log(float x) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  // The exponent of the factor that makes a subnormal x normal. Masks and sums instead of choices: GCC would branch.
  const std::int32_t raised = 25 & -static_cast<std::int32_t>(x < std::numeric_limits<float>::min());
  const float scaled = x * std::bit_cast<float>((raised + 127) << 23);
  // scaled = m 2^e with m in [sqrt(1/2), sqrt(2))
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(scaled) - 0x3f3504f3u);  // wraps for negative x
  const float e = static_cast<float>((bits >> 23) - raised);
  const float r = std::bit_cast<float>((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
  float p = 7.0376836292e-2f;
  p = multiply_add(p, r, -1.1514610310e-1f);
  p = multiply_add(p, r, 1.1676998740e-1f);
  p = multiply_add(p, r, -1.2420140846e-1f);
  p = multiply_add(p, r, 1.4249322787e-1f);
  p = multiply_add(p, r, -1.6668057665e-1f);
  p = multiply_add(p, r, 2.0000714765e-1f);
  p = multiply_add(p, r, -2.4999993993e-1f);
  p = multiply_add(p, r, 3.3333331174e-1f);
  const float square = r * r;
  const float y = multiply_add(-0.5f, square, multiply_add(e, -2.12194440e-4f, p * r * square));
  // y is finite for every x.
  const float special =
      (x < infinity ? 0.0f : x) + (x == 0.0f ? -infinity : 0.0f) + (x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  return multiply_add(e, 0.693359375f, r + y) + special;
}

inline double vector_exp(double x) { return std::exp(x); }
inline double vector_log(double x) { return std::log(x); }

}  // namespace frit::ops
