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

/// A functor that is a formula of x.
#define FRIT_UNARY_FUNCTOR(Name, formula)                        \
  template <class T>                                             \
  struct Name {                                                  \
    FRIT_HOST_DEVICE T operator()(T x) const { return formula; } \
  };
FRIT_UNARY_FUNCTOR(Exp, exponential(x))
FRIT_UNARY_FUNCTOR(Log, logarithm(x))
FRIT_UNARY_FUNCTOR(Sqrt, std::sqrt(x))
FRIT_UNARY_FUNCTOR(Square, (x * x))
FRIT_UNARY_FUNCTOR(Reciprocal, 1 / x)
FRIT_UNARY_FUNCTOR(Rsqrt, 1 / std::sqrt(x))
FRIT_UNARY_FUNCTOR(Erf, error_function(x))
FRIT_UNARY_FUNCTOR(Floor, std::floor(x))
FRIT_UNARY_FUNCTOR(Ceil, std::ceil(x))
FRIT_UNARY_FUNCTOR(Round, std::rint(x))
FRIT_UNARY_FUNCTOR(Sign, static_cast<T>(x > 0) - static_cast<T>(x < 0))
FRIT_UNARY_FUNCTOR(Identity, x)
#undef FRIT_UNARY_FUNCTOR

}  // namespace frit::ops
