#pragma once

#include <cmath>

#include "frit/ops/elementwise/scalar_math.h"

namespace frit::ops {

/// `gradient` times the sign of x, which is 0 at 0 and at NaN.
template <class T>
struct Abs {
  static constexpr bool gradient_from_output = false;
  static constexpr bool piecewise_linear = true;
  FRIT_HOST_DEVICE T operator()(T x) const { return magnitude(x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return gradient * select(x > 0, T(1), select(x < 0, T(-1), T(0))); }
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

template <class T>
struct Rsqrt {
  FRIT_HOST_DEVICE T operator()(T x) const { return 1 / std::sqrt(x); }
};

template <class T>
struct Sin {
  FRIT_HOST_DEVICE T operator()(T x) const { return sine(x); }
  static bool is_usual(T x) requires(std::is_same_v<T, float>) { return is_usual_angle(x); }
  static T of_usual(T x) requires(std::is_same_v<T, float>) { return vector_sin(x); }
};

template <class T>
struct Cos {
  FRIT_HOST_DEVICE T operator()(T x) const { return cosine(x); }
  static bool is_usual(T x) requires(std::is_same_v<T, float>) { return is_usual_angle(x); }
  static T of_usual(T x) requires(std::is_same_v<T, float>) { return vector_cos(x); }
};

template <class T>
struct Erf {
  FRIT_HOST_DEVICE T operator()(T x) const { return error_function(x); }
};

template <class T>
struct Floor {
  FRIT_HOST_DEVICE T operator()(T x) const { return std::floor(x); }
};

template <class T>
struct Ceil {
  FRIT_HOST_DEVICE T operator()(T x) const { return std::ceil(x); }
};

template <class T>
struct Round {
  FRIT_HOST_DEVICE T operator()(T x) const { return std::rint(x); }
};

template <class T>
struct Sign {
  FRIT_HOST_DEVICE T operator()(T x) const { return static_cast<T>(x > 0) - static_cast<T>(x < 0); }
};

template <class T>
struct Identity {
  FRIT_HOST_DEVICE T operator()(T x) const { return x; }
};

}  // namespace frit::ops
