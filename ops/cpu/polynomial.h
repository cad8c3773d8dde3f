#pragma once

#include <cmath>
#include <type_traits>

#include "frit/core/half.h"

namespace frit::ops {

/// a * b + c, on the host rounded once where the processor can.
template <class T>
FRIT_HOST_DEVICE T multiply_add(T a, T b, T c) {
#if !defined(__CUDA_ARCH__) && (defined(__FMA__) || defined(__FP_FAST_FMAF))
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// A polynomial of x, given its coefficients from that of the highest power on.
template <class T, class... Rest>
FRIT_HOST_DEVICE T polynomial(T x, double highest, Rest... rest) {
  T sum = static_cast<T>(highest);
  ((sum = multiply_add(sum, x, static_cast<T>(rest))), ...);
  return sum;
}

/// Whether T stands for float32: a float, or a vector of them (see lanes.h).
template <class T>
inline constexpr bool is_single = std::is_same_v<T, float>;

}  // namespace frit::ops
