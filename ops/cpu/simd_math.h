#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "frit/ops/cpu/simd.h"

namespace frit::ops::simd {

/// The larger or smaller, b where one is NaN.
template <class V>
inline V max(V a, V b) {
#if defined(__AVX__) && !defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == sizeof(float)) return _mm256_max_ps(a, b);
#endif
  return a > b ? a : b;
}
template <class V>
inline V min(V a, V b) {
#if defined(__AVX__) && !defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == sizeof(float)) return _mm256_min_ps(a, b);
#endif
  return a < b ? a : b;
}

/// The exponential as a softmax needs it. In float32 the relative error is below 1e-7 + 2e-8 |x| where the processor multiplies and adds at
/// once, 1e-7 |x| else; 0 stands for what is below 2^-126, infinity for what is above 2^127.5. Keeps NaN. Of several vectors at once, a few
/// steps of each in turn, as each step waits for the one before. The coefficients are of a minimax polynomial for (2^f - 1) / f.
template <class T, int count>
inline void exp(Vector<T> (&x)[count]) {
  const auto for_each = [](const auto& body) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) body(i);
  };
  if constexpr (sizeof(T) == sizeof(float)) {
    Vector<T> rounded[count], p[count];
    for_each([&](int i) __attribute__((always_inline)) {
      // Adding `round` rounds to an integer n, held in the low bits as the exponent of 2^n: 0 for the least x, infinity for the most.
      constexpr float round = 0x1.8p23f + 127, log2_e = 1.44269504f;
      x[i] = min(broadcast(89.0f), max(broadcast(-88.0f), x[i]));
      rounded[i] = multiply_add(x[i], broadcast(log2_e), broadcast(round));
      x[i] = multiply_add(x[i], broadcast(log2_e), round - rounded[i]);
    });
    for_each([&](int i) __attribute__((always_inline)) {
      p[i] = multiply_add(broadcast(1.53533605e-4f), x[i], broadcast(1.3398875e-3f));
      p[i] = multiply_add(p[i], x[i], broadcast(9.61843692e-3f));
    });
    for_each([&](int i) __attribute__((always_inline)) {
      p[i] = multiply_add(p[i], x[i], broadcast(5.55033237e-2f));
      p[i] = multiply_add(p[i], x[i], broadcast(0.240226477f));
    });
    for_each([&](int i) __attribute__((always_inline)) {
      p[i] = multiply_add(p[i], x[i], broadcast(0.693147182f));
      p[i] = multiply_add(p[i], x[i], broadcast(1.0f));
    });
    for_each([&](int i) __attribute__((always_inline)) {
      x[i] = p[i] * reinterpret_cast<Vector<T>>(reinterpret_cast<Vector<std::int32_t>>(rounded[i]) << 23);
    });
  } else {
    for (Vector<T>& each : x) {
      for (int i = 0; i < lanes<T>; ++i) each[i] = std::exp(each[i]);
    }
  }
}

/// The natural logarithm, in float32 below 2 units in the last place. Right at 0, infinities and subnormal numbers, and keeps NaN. The
/// coefficients are those of Cephes, logf.c.
template <class T>
inline Vector<T> log(Vector<T> x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    using V = Vector<T>;
    using Bits = Vector<std::int32_t>;
    const auto as_value = [](Bits bits) { return reinterpret_cast<V>(bits); };
    // The exponent of the factor that makes a subnormal x normal.
    const Bits raised = (x < std::numeric_limits<T>::min()) & 25;
    // x 2^raised = m 2^e with m in [sqrt(1/2), sqrt(2))
    const auto raised_bits = reinterpret_cast<Vector<std::uint32_t>>(x * as_value((raised + 127) << 23));  // of negative x it wraps around
    const auto bits = reinterpret_cast<Bits>(raised_bits - 0x3f3504f3u);
    const V e = __builtin_convertvector((bits >> 23) - raised, V);
    const V r = as_value((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
    V p = broadcast(7.0376836292e-2f);
    p = multiply_add(p, r, broadcast(-1.1514610310e-1f));
    p = multiply_add(p, r, broadcast(1.1676998740e-1f));
    p = multiply_add(p, r, broadcast(-1.2420140846e-1f));
    p = multiply_add(p, r, broadcast(1.4249322787e-1f));
    p = multiply_add(p, r, broadcast(-1.6668057665e-1f));
    p = multiply_add(p, r, broadcast(2.0000714765e-1f));
    p = multiply_add(p, r, broadcast(-2.4999993993e-1f));
    p = multiply_add(p, r, broadcast(3.3333331174e-1f));
    const V square = r * r;
    const V y = multiply_add(broadcast(-0.5f), square, multiply_add(e, broadcast(-2.12194440e-4f), p * r * square));
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const V result = multiply_add(e, broadcast(0.693359375f), r + y);
    const V special = x == 0 ? broadcast(-infinity) : x < 0 ? broadcast(std::numeric_limits<T>::quiet_NaN()) : x;
    return ((x > 0) & (x < infinity)) ? result : special;
  } else {
    for (int i = 0; i < lanes<T>; ++i) x[i] = std::log(x[i]);
    return x;
  }
}

}  // namespace frit::ops::simd
