#pragma once

#include "frit/ops/convolution/lowerings/subpixel.h"

// The weight of a convolution whose input has taps as channels. Tap u of a cell meets element taps - 1 - u of the kernel.

namespace frit::ops {

struct PackWeightAttributes {
  Dims taps = {};                   ///< on each axis all elements of the kernel, or 1: an axis that stays
  std::int64_t channels = 0;        ///< as those of PackTapsAttributes
  std::int64_t packed = 0;          ///< channels in all
  std::optional<DType> dtype = {};  ///< of the output, where not the input's: the other of float32 and a half
  void fields(FieldVisitor& v) {
    v.field("taps", taps);
    v.field("channels", channels);
    v.field("packed", packed);
    v.field("dtype", dtype);
  }
};

struct PackWeightBackwardAttributes : PackWeightAttributes {
  std::int64_t in_channels = 0;
  void fields(FieldVisitor& v) {
    PackWeightAttributes::fields(v);
    v.field("in_channels", in_channels);
  }
};

/// weight (K, C, kernel...) -> (K, packed, kernel / taps...), with zeros for channels that the weight does not have.
Value pack_weight(Value weight, const PackWeightAttributes& attributes);
/// The gradient of the weight from that of the packed one.
Value pack_weight_backward(Value gradient, const PackWeightBackwardAttributes& attributes);

}  // namespace frit::ops
