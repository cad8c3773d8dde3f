#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "frit/ops/elementwise/scalar_math.h"

namespace frit::ops {

// The arithmetic operators on single elements. Integers wrap around: signed overflow would be undefined.

/// An integer as the unsigned one that is computed with; other numbers as they are.
template <class T>
FRIT_HOST_DEVICE auto wrapping(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(x);
  } else {
    return x;
  }
}

#define FRIT_ARITHMETIC(Name, op)                                                                        \
  template <class T>                                                                                     \
  struct Name {                                                                                          \
    FRIT_HOST_DEVICE T operator()(T a, T b) const { return static_cast<T>(wrapping(a) op wrapping(b)); } \
  };
FRIT_ARITHMETIC(Add, +)
FRIT_ARITHMETIC(Subtract, -)
FRIT_ARITHMETIC(Multiply, *)
#undef FRIT_ARITHMETIC

template <class T>
struct Divide {
  FRIT_HOST_DEVICE T operator()(T a, T b) const {
#ifdef __CUDA_ARCH__
    // A GPU's division calls a function where an operand is zero or of an extreme exponent. These give the same without it: by a power of
    // 2, whose reciprocal is exact, and of zero.
    if constexpr (std::is_same_v<T, float>) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(b), exponent = bits >> 23 & 0xff;
      if ((bits & 0x7fffff) == 0 && exponent - 1 < 253) {
        return a * std::bit_cast<float>((254 - exponent) << 23 | (bits & 0x80000000u));
      }
      if (a == 0 && b != 0 && b == b) return std::copysign(1.0f, b) * a;
    }
#endif
    return a / b;
  }
};

template <class T>
struct Negate {
  FRIT_HOST_DEVICE T operator()(T a) const { return static_cast<T>(-wrapping(a)); }
};

template <class T>
struct Power {
  FRIT_HOST_DEVICE T operator()(T base, T exponent) const { return to_the(base, exponent); }
};

/// The smaller or larger of two; NaN if either is NaN. `gradient` is the share of `a`: half at a tie, all of it at NaN.
template <class T, bool larger>
struct ExtremeOfTwo {
  FRIT_HOST_DEVICE T operator()(T a, T b) const { return ((larger ? a > b : a < b) | (a != a)) ? a : b; }
  FRIT_HOST_DEVICE T gradient(T gradient, T a, T b) const {
    const T half = gradient / 2;
    const T rest = (larger ? a < b : a > b) ? T(0) : gradient;
    return a == b ? half : rest;
  }
};
template <class T>
struct Minimum : ExtremeOfTwo<T, false> {};
template <class T>
struct Maximum : ExtremeOfTwo<T, true> {};

}  // namespace frit::ops
