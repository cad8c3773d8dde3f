#pragma once

#include <limits>

#include "frit/ops/elementwise/scalar_math.h"

namespace frit::ops {

// Losses of one prediction p and one target t, and their derivatives by p. antisymmetric: that by t is its opposite.

struct SquaredError {
  static constexpr bool antisymmetric = true;
  template <class T>
  FRIT_HOST_DEVICE static T value(T p, T t) {
    return (p - t) * (p - t);
  }
  template <class T>
  FRIT_HOST_DEVICE static T by_prediction(T p, T t) {
    return 2 * (p - t);
  }
};

/// The derivative at p = t, and where either is NaN, is 0.
struct AbsoluteError {
  static constexpr bool antisymmetric = true;
  template <class T>
  FRIT_HOST_DEVICE static T value(T p, T t) {
    return std::abs(p - t);
  }
  template <class T>
  FRIT_HOST_DEVICE static T by_prediction(T p, T t) {
    return static_cast<T>(p > t) - static_cast<T>(p < t);
  }
};

/// -t log(sigmoid(p)) - (1 - t) log(1 - sigmoid(p)), without a difference of large numbers. NaN at p = -inf, as in PyTorch, which adds
/// infinities of both signs there.
struct LogisticCrossEntropy {
  static constexpr bool antisymmetric = false;
  template <class T>
  FRIT_HOST_DEVICE static T value(T p, T t) {
    const T below = (p - p) - t * p, above = (1 - t) * p;
    return (p < 0 ? below : above) + log_one_plus(exponential(-std::abs(p)));
  }
  template <class T>
  FRIT_HOST_DEVICE static T by_prediction(T p, T t) {
    return logistic(p) - t;
  }
};

/// Of the logits of a column; an infinite maximum makes the cross entropy NaN, as log_softmax does in PyTorch.
template <class T>
FRIT_HOST_DEVICE T finite_or_nan(T maximum) {
  return std::isinf(maximum) ? std::numeric_limits<T>::quiet_NaN() : maximum;
}

}  // namespace frit::ops
