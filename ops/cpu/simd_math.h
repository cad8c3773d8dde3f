#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "frit/ops/cpu/simd.h"

namespace frit::ops::simd {

/// The exponential as a softmax needs it: in float32, below 2 units in the last place, but 0 where it would be subnormal and infinity from
/// 88.4 on. Keeps NaN. The coefficients are those of Cephes (S. Moshier), expf.c. Of several vectors at once, a few steps of each in turn,
/// as each step waits for the one before.
template <class T, int count>
inline void exp(Vector<T> (&x)[count]) {
  const auto for_each = [](const auto& body) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) body(i);
  };
  if constexpr (sizeof(T) == sizeof(float)) {
    Vector<T> rounded[count], p[count];
    for_each([&](int i) __attribute__((always_inline)) {
      const Vector<T> least = broadcast(-88.0f), most = broadcast(89.0f);  // 2^-127 and 2^128 below
      x[i] = least > x[i] ? least : x[i];
      x[i] = most < x[i] ? most : x[i];
    });
    for_each([&](int i) __attribute__((always_inline)) {
      // Adding `round` rounds to an integer n, held in the low bits as the exponent of 2^n.
      constexpr float round = 0x1.8p23f + 127;
      rounded[i] = multiply_add(x[i], broadcast(1.44269504f), broadcast(round));
      const Vector<T> n = rounded[i] - round;
      x[i] = multiply_add(n, broadcast(2.12194440e-4f), multiply_add(n, broadcast(-0.693359375f), x[i]));  // x - n log(2)
    });
    for_each([&](int i) __attribute__((always_inline)) {
      p[i] = multiply_add(broadcast(1.9875691500e-4f), x[i], broadcast(1.3981999507e-3f));
      p[i] = multiply_add(p[i], x[i], broadcast(8.3334519073e-3f));
    });
    for_each([&](int i) __attribute__((always_inline)) {
      p[i] = multiply_add(p[i], x[i], broadcast(4.1665795894e-2f));
      p[i] = multiply_add(p[i], x[i], broadcast(1.6666665459e-1f));
      p[i] = multiply_add(p[i], x[i], broadcast(5.0000001201e-1f));
    });
    for_each([&](int i) __attribute__((always_inline)) {
      const Vector<T> power = reinterpret_cast<Vector<T>>(reinterpret_cast<Vector<std::int32_t>>(rounded[i]) << 23);
      x[i] = (multiply_add(p[i], x[i] * x[i], x[i]) + 1.0f) * power;
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
    const auto as_bits = [](V value) { return reinterpret_cast<Bits>(value); };
    const auto as_value = [](Bits bits) { return reinterpret_cast<V>(bits); };
    // The exponent of the factor that makes a subnormal x normal.
    const Bits raised = (x < std::numeric_limits<T>::min()) & 25;
    // x 2^raised = m 2^e with m in [sqrt(1/2), sqrt(2))
    const Bits bits = as_bits(x * as_value((raised + 127) << 23)) - 0x3f3504f3;
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
