#pragma once

#include "frit/core/half.h"

namespace frit::ops {

// clamp(ScaledSigmoid(logsumexp(input over channels)) - bias): what follows a transposed convolution. The attributes are those of clamp.
// The backward operator finds the softmax anew from the input, so nothing is saved.

/// y sigmoid(y + 3) / 6, given the sigmoid: each device has its own fast exponential.
template <class T>
struct ScaledSigmoid {
  static constexpr T shift = 3, divisor = 6;

  FRIT_HOST_DEVICE static T value(T y, T sigmoid) { return y * sigmoid / divisor; }
  /// NaN for an infinite y, as that of the single operators.
  FRIT_HOST_DEVICE static T gradient(T gradient, T y, T sigmoid) {
    const T scaled = gradient / divisor;
    return scaled * sigmoid + scaled * y * (1 - sigmoid) * sigmoid;
  }
};

}  // namespace frit::ops
