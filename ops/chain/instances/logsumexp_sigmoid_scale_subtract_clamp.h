#pragma once

#include "frit/core/half.h"
#include "frit/ops/chain/chain.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/elementwise/activation_functors.h"

namespace frit::ops {

// clamp(ScaledSigmoid(logsumexp(input over channels)) - bias): what follows a transposed convolution. The input may come as
// depth_to_space takes it, (N, block * C, positions...): it is never spread out. The backward operator recomputes the softmax from the
// input, so nothing is saved.

struct LogsumexpSigmoidScaleSubtractClampAttributes {
  std::optional<double> min, max;
  BlockAttributes blocks = {};  ///< empty: the input is (N, C, ...)

  ClampAttributes clamp() const { return {min, max}; }
  bool blocked() const { return !blocks.block.empty(); }
  std::int64_t block() const { return product(blocks.block); }
  void fields(FieldVisitor& v) {
    v.field("min", min);
    v.field("max", max);
    blocks.fields(v);
  }
};

/// The input with each place in a block as a sample: (N * block, C, positions).
inline Planes planes_of(const Shape& input, const LogsumexpSigmoidScaleSubtractClampAttributes& a) {
  return Planes({input[0] * a.block(), input[1] / a.block(), product(image_of(input))});
}

/// y sigmoid(y + 3) / 6, given the sigmoid: each device has its own fast exponential.
template <class T>
struct ScaledSigmoid {
  static constexpr T shift = 3, divisor = 6, share = 1 / divisor;

  FRIT_HOST_DEVICE static T value(T y, T sigmoid) { return y * sigmoid * share; }
  /// NaN for an infinite y, as that of the single operators.
  FRIT_HOST_DEVICE static T gradient(T gradient, T y, T sigmoid) {
    const T scaled = gradient * share;
    return scaled * sigmoid + scaled * y * (1 - sigmoid) * sigmoid;
  }
};

}  // namespace frit::ops
