#pragma once

#include "frit/ops/convolution/lowerings/subpixel.h"

// The weight of a convolution whose input has taps as channels. Tap u of a position meets element taps - 1 - u of the kernel.

namespace frit::ops {

struct Im2colWeightAttributes {
  Dims taps = {};                   ///< on each axis all elements of the kernel, or 1: an axis that stays
  std::int64_t channels = 0;        ///< as those of Im2colAttributes
  std::int64_t im2col_channels = 0;  ///< of all taps, and zeros
  std::optional<DType> dtype = {};  ///< of the output, where not the input's: the other of float32 and a half
  void fields(FieldVisitor& v) {
    v.field("taps", taps);
    v.field("channels", channels);
    v.field("im2col_channels", im2col_channels);
    v.field("dtype", dtype);
  }
};

struct Im2colWeightBackwardAttributes : Im2colWeightAttributes {
  std::int64_t in_channels = 0;
  void fields(FieldVisitor& v) {
    Im2colWeightAttributes::fields(v);
    v.field("in_channels", in_channels);
  }
};

/// weight (K, C, kernel...) -> (K, im2col_channels, kernel / taps...), with zeros for channels that the weight does not have.
Value im2col_weight(Value weight, const Im2colWeightAttributes& attributes);
/// The gradient of the weight from that of im2col_weight.
Value im2col_weight_backward(Value gradient, const Im2colWeightBackwardAttributes& attributes);

}  // namespace frit::ops
