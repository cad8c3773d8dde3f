#pragma once

#include <cmath>

#include "frit/ops/elementwise/scalar_math.h"

namespace frit::ops {

/// `gradient` times the sign of x, which is 0 at 0 and at NaN.
template <class T>
struct Abs {
  static constexpr bool gradient_from_output = false;
  static constexpr bool piecewise_linear = true;
  FRIT_HOST_DEVICE T operator()(T x) const { return std::abs(x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return gradient * (static_cast<T>(x > 0) - static_cast<T>(x < 0)); }
};

template <class T>
struct Exp {
  FRIT_HOST_DEVICE T operator()(T x) const { return exponential(x); }
};

template <class T>
struct Log {
  FRIT_HOST_DEVICE T operator()(T x) const { return logarithm(x); }
};

template <class T>
struct Sqrt {
  FRIT_HOST_DEVICE T operator()(T x) const { return std::sqrt(x); }
};

template <class T>
struct Square {
  FRIT_HOST_DEVICE T operator()(T x) const { return x * x; }
};

template <class T>
struct Reciprocal {
  FRIT_HOST_DEVICE T operator()(T x) const { return 1 / x; }
};

}  // namespace frit::ops
