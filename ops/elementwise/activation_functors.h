#pragma once

#include <limits>
#include <optional>

#include "frit/core/fields.h"
#include "frit/ops/elementwise/scalar_math.h"

namespace frit::ops {

// The activations on single elements, T being float or double, or on a CPU a vector of float32, and their attributes. `gradient(g, v)` is
// the gradient g of the output carried to the input: see Differentiable. Values and gradients at NaN, infinities and bounds are those of
// PyTorch 2.11's CUDA kernels.

/// What an activation says of its gradient unless it says otherwise.
struct Differentiable {
  static constexpr bool gradient_from_output = false;  ///< v is the output, else the input
  static constexpr bool piecewise_linear = false;      ///< the gradient's derivative by v is 0
};

struct ClampAttributes {
  std::optional<double> min, max;

  void fields(FieldVisitor& v) {
    v.field("min", min);
    v.field("max", max);
  }
};

struct LeakyReluAttributes {
  double negative_slope = 0.01;

  void fields(FieldVisitor& v) { v.field("negative_slope", negative_slope); }
};

struct EluAttributes {
  double alpha = 1;

  void fields(FieldVisitor& v) { v.field("alpha", alpha); }
};

struct GeluAttributes {
  std::string approximate = "none";  ///< or "tanh"

  void fields(FieldVisitor& v) { v.field("approximate", approximate); }
};

struct SoftplusAttributes {
  double beta = 1;
  double threshold = 20;  ///< above it, in x * beta, the function is x

  void fields(FieldVisitor& v) {
    v.field("beta", beta);
    v.field("threshold", threshold);
  }
};

/// min(max(x, low), high): NaN if x or a bound is, `high` where low > high. The gradient passes where low <= x <= high, and is dropped,
/// even if it is not finite, elsewhere and at NaN.
template <class T>
struct Clamp : Differentiable {
  static constexpr bool piecewise_linear = true;
  T low, high;

  explicit Clamp(const ClampAttributes& a)
      : low(static_cast<T>(a.min.value_or(-std::numeric_limits<double>::infinity()))),
        high(static_cast<T>(a.max.value_or(std::numeric_limits<double>::infinity()))) {}
  FRIT_HOST_DEVICE T operator()(T x) const {
    const T raised = select((x < low) | (low != low), low, x);
    return select((raised > high) | (high != high), high, raised);
  }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return select((x >= low) & (x <= high), gradient, T(0)); }
};

template <class T>
struct Relu : Differentiable {
  static constexpr bool gradient_from_output = true;
  static constexpr bool piecewise_linear = true;
  FRIT_HOST_DEVICE T operator()(T x) const { return select(x < 0, T(0), x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T y) const { return select(y <= 0, T(0), gradient); }
};

template <class T>
struct LeakyRelu : Differentiable {
  static constexpr bool piecewise_linear = true;
  T negative_slope;

  explicit LeakyRelu(const LeakyReluAttributes& a) : negative_slope(static_cast<T>(a.negative_slope)) {}
  FRIT_HOST_DEVICE T operator()(T x) const { return select(x > 0, x, x * negative_slope); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return select(x > 0, gradient, gradient * negative_slope); }
};

template <class T>
struct Elu : Differentiable {
  T alpha;

  explicit Elu(const EluAttributes& a) : alpha(static_cast<T>(a.alpha)) {}
  FRIT_HOST_DEVICE T operator()(T x) const { return select(x < 0, alpha * exponential_minus_one(x), x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return select(x <= 0, gradient * alpha * exponential(x), gradient); }
};

/// x times the normal distribution function.
template <class T>
struct GeluErf : Differentiable {
  FRIT_HOST_DEVICE T operator()(T x) const { return x * Normal<T>(x).below; }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const {
    const Normal<T> normal(x);
    return gradient * (normal.below + x * normal.density);
  }
};

/// x (1 + tanh u) / 2, which is x logistic(2u), with u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
struct GeluTanh : Differentiable {
  FRIT_HOST_DEVICE T operator()(T x) const { return x * logistic(2 * inner(x)); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const {
    const T s = logistic(2 * inner(x));
    return gradient * (s + 2 * x * (s * (1 - s)) * (static_cast<T>(root_two_over_pi) * (1 + 3 * static_cast<T>(cubic) * x * x)));
  }

 private:
  static constexpr double root_two_over_pi = 0.79788456080286535588, cubic = 0.044715;
  FRIT_HOST_DEVICE static T inner(T x) { return static_cast<T>(root_two_over_pi) * (x + static_cast<T>(cubic) * x * x * x); }
};

/// The form of gelu that the attributes name.
template <class T>
struct Gelu : Differentiable {
  bool tanh_form;

  explicit Gelu(const GeluAttributes& a) : tanh_form(a.approximate == "tanh") {}
  FRIT_HOST_DEVICE T operator()(T x) const { return tanh_form ? GeluTanh<T>{}(x) : GeluErf<T>{}(x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const {
    return tanh_form ? GeluTanh<T>{}.gradient(gradient, x) : GeluErf<T>{}.gradient(gradient, x);
  }
};

template <class T>
struct Sigmoid : Differentiable {
  static constexpr bool gradient_from_output = true;
  FRIT_HOST_DEVICE T operator()(T x) const { return logistic(x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T y) const { return gradient * (1 - y) * y; }
};

template <class T>
struct Tanh : Differentiable {
  static constexpr bool gradient_from_output = true;
  FRIT_HOST_DEVICE T operator()(T x) const { return hyperbolic_tangent(x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T y) const { return gradient * (1 - y * y); }
};

template <class T>
struct Silu : Differentiable {
  FRIT_HOST_DEVICE T operator()(T x) const { return x * logistic(x); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const {
    const T s = logistic(x);
    return gradient * s * (1 + x * (1 - s));
  }
};

/// x tanh(log(1 + exp x)). With e = exp(-|x|), which cannot overflow, the tanh is (2e + 1) / (2e^2 + 2e + 1) for x >= 0 and
/// (e^2 + 2e) / (e^2 + 2e + 2) for x < 0.
template <class T>
struct Mish : Differentiable {
  FRIT_HOST_DEVICE T operator()(T x) const { return x * Parts(x).tanh; }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const {
    const Parts parts(x);
    return gradient * (parts.tanh + x * parts.slope);
  }

 private:
  struct Parts {
    T tanh, slope;  // of log(1 + exp x), and its derivative by x
    FRIT_HOST_DEVICE explicit Parts(T x) {
      const T e = exponential(-magnitude(x));
      const T square = e * e;
      const T numerator = 2 * e + select(x < 0, square, T(1));
      const T denominator = numerator + select(x < 0, T(2), 2 * square);
      const T rest = reciprocal(denominator);
      tanh = numerator * rest;
      slope = 4 * select(x < 0, e, square) * (1 + e) * (rest * rest);
    }
  };
};

template <class T>
struct Softplus : Differentiable {
  T beta, threshold;

  explicit Softplus(const SoftplusAttributes& a) : beta(static_cast<T>(a.beta)), threshold(static_cast<T>(a.threshold)) {}
  FRIT_HOST_DEVICE T operator()(T x) const {
    const T scaled = x * beta;
    const auto linear = scaled > threshold;
    const T straight = select(linear | (scaled > 0), x, T(0));
    return straight + log_one_plus(exponential(select(linear, T(-1000), -magnitude(scaled)))) / beta;
  }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return select(x * beta > threshold, gradient, gradient * logistic(x * beta)); }
};

/// min(max(x + 3, 0), 6) / 6.
template <class T>
struct HardSigmoid : Differentiable {
  static constexpr bool piecewise_linear = true;
  static constexpr double sixth = 1.0 / 6;  // as PyTorch's kernels have it: a division takes as long as ten products
  FRIT_HOST_DEVICE T operator()(T x) const { return raised(x) * static_cast<T>(sixth); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const { return select((x > -3) & (x < 3), gradient * static_cast<T>(sixth), T(0)); }

  FRIT_HOST_DEVICE static T raised(T x) {
    const T shifted = x + 3;
    const T positive = select(shifted < 0, T(0), shifted);
    return select(positive > 6, T(6), positive);
  }
};

template <class T>
struct HardSwish : Differentiable {
  FRIT_HOST_DEVICE T operator()(T x) const { return x * HardSigmoid<T>::raised(x) * static_cast<T>(HardSigmoid<T>::sixth); }
  FRIT_HOST_DEVICE T gradient(T gradient, T x) const {
    const T inside = gradient * (x * static_cast<T>(1.0 / 3) + static_cast<T>(0.5));
    return select(x <= -3, T(0), select(x < 3, inside, gradient));
  }
};

}  // namespace frit::ops
