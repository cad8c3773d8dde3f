#pragma once

#include <cmath>
#include <type_traits>

#include "frit/ops/cpu/vector_math.h"

// The transcendental functions that the functors use. For float and vectors of it on the host they have no branches and no calls, but for
// sine and cosine of unusual angles, so that a loop over them becomes vector code, and errors below 1e-6 relative to the result; for
// double, and on a CUDA device, they are the library's.

namespace frit::ops {

#ifdef __CUDA_ARCH__
template <class T>
inline constexpr bool branch_free = false;
#else
template <class T>
inline constexpr bool branch_free = is_single<T>;
#endif

// What has no operator for vectors.
template <class T>
FRIT_HOST_DEVICE T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}
template <class T>
FRIT_HOST_DEVICE T magnitude(T x) {
  return std::abs(x);
}
template <class T>
FRIT_HOST_DEVICE T with_sign_of(T sign, T x) {
  return std::copysign(x, sign);
}

template <class T>
FRIT_HOST_DEVICE T exponential(T x) {
  if constexpr (branch_free<T>) {
    return vector_exp(x);
  } else {
    return std::exp(x);
  }
}

template <class T>
FRIT_HOST_DEVICE T logarithm(T x) {
  if constexpr (branch_free<T>) {
    return vector_log(x);
  } else {
    return std::log(x);
  }
}

template <class T>
FRIT_HOST_DEVICE T sine(T x) {
  if constexpr (branch_free<T>) {
    if (is_usual_angle(x)) return vector_sin(x);
  }
  return std::sin(x);
}

template <class T>
FRIT_HOST_DEVICE T cosine(T x) {
  if constexpr (branch_free<T>) {
    if (is_usual_angle(x)) return vector_cos(x);
  }
  return std::cos(x);
}

template <class T>
FRIT_HOST_DEVICE T to_the(T base, T exponent) {
  if constexpr (branch_free<T>) {
    return vector_pow(base, exponent);
  } else {
    return std::pow(base, exponent);
  }
}

/// 1 / x for x >= 1 or 0. Of a float on a CUDA device it may be the neighbour of the nearest; the division takes several times as long.
template <class T>
FRIT_HOST_DEVICE T reciprocal(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
  }
#endif
  return 1 / x;
}

/// 1 / (1 + exp(-x)).
template <class T>
FRIT_HOST_DEVICE T logistic(T x) {
  return reciprocal(1 + exponential(-x));
}

/// tanh of |x| < 0.625, relatively exact (Cephes, tanhf.c).
template <class T>
FRIT_HOST_DEVICE T small_tanh(T x) {
  const T z = x * x;
  const T p = polynomial(z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1);
  return multiply_add(p * z, x, x);
}

template <class T>
FRIT_HOST_DEVICE T hyperbolic_tangent(T x) {
  if constexpr (branch_free<T>) {
    const T size = magnitude(x);
    const T large = with_sign_of(x, 1 - 2 / (exponential(2 * size) + 1));
    return select(size < static_cast<T>(0.625), small_tanh(x), large);
  } else {
    return std::tanh(x);
  }
}

/// exp(x) - 1 for x <= 0.
template <class T>
FRIT_HOST_DEVICE T exponential_minus_one(T x) {
  if constexpr (branch_free<T>) {
    const T power = exponential(x);
    const T small = small_tanh(x / 2) * (power + 1);
    const T large = power - 1;
    return select(x > static_cast<T>(-0.5), small, large);
  } else {
    return std::expm1(x);
  }
}

/// The error function. The polynomials have the least errors relative to it: of erf(x) / x - 1 by x^2, and of log(erfc(x)) / -x - 1 by x.
template <class T>
FRIT_HOST_DEVICE inline T error_function(T x) {
  if constexpr (branch_free<T>) {
    const T square = x * x, size = magnitude(x);
    const T small = polynomial(square, -6.0903602e-4, 5.0119629e-3, -2.6778909e-2, 1.12821408e-1, -3.76125233e-1, 1.28379154e-1);
    const T t = select(size > 4, T(4), size);  // where it is 1
    const T large = polynomial(t, -2.14595058e-4, 3.21997580e-3, -2.29060321e-2, 1.05286855e-1, 6.35699367e-1, 1.28519953e-1);
    const T outside = with_sign_of(x, 1 - exponential(multiply_add(large, -t, -t)));
    const T inside = multiply_add(small, x, x);
    return select(size < static_cast<T>(0.9), inside, outside);
  } else {
    return std::erf(x);
  }
}

/// log(1 + x) for 0 <= x <= 1.
template <class T>
FRIT_HOST_DEVICE T log_one_plus(T x) {
  if constexpr (branch_free<T>) {
    // 2 artanh(z) with z = x / (2 + x); the polynomial has the least relative error.
    const T z = x / (2 + x), square = z * z;
    const T p = polynomial(square, 2.80119948e-1, 2.80018038e-1, 4.00215273e-1, 6.66664163e-1);
    return multiply_add(p * square, z, 2 * z);
  } else {
    return std::log1p(x);
  }
}

/// exp(-x^2 / 2). Of a float on a CUDA device relatively within 1e-6 for |x| <= 4 and 1e-5 to the end, as the exponent is rounded: a third
/// of the instructions.
template <class T>
FRIT_HOST_DEVICE T bell(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) {
    float power = x * x * -0.72134752044448170368f;  // log2(e) / 2
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(power));
    return power;
  }
#endif
  return exponential(x * x / -2);
}

/// The standard normal distribution: its integral up to x, and its density there.
template <class T>
struct Normal {
  T below, density;

  FRIT_HOST_DEVICE explicit Normal(T x) {
    const T power = bell(x);
    density = power * static_cast<T>(0.39894228040143267794);
    if constexpr (is_single<T>) {  // erfc is slow on a CUDA device, too
      // exp(x^2 / 2) times the integral up to -|x| is a smooth function of t; the polynomial has the least relative error, 1e-7.
      const T t = reciprocal(1 + static_cast<T>(0.3) * magnitude(x));
      const T p = polynomial(t, 0.00500201269, 0.0129110731, -0.113424165, 0.160015519, -0.0242438005, 0.117095553, 0.102581174,
                             0.120415453, 0.119647227);
      const T tail = power * p * t;
      const T rest = 1 - tail;
      below = select(x < 0, tail, rest);
    } else {
      below = std::erfc(x * static_cast<T>(-0.70710678118654752440)) / 2;
    }
  }
};

}  // namespace frit::ops
