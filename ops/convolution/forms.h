#pragma once

#include "frit/ops/operator.h"

// Other forms of convolutions (see Operator::forms). They are for few channels, where the library's kernels leave most of a tensor core
// idle.

namespace frit::ops {

/// Of conv2d and conv3d: with zero channels added up to a multiple.
Values padded_channels(std::span<const Value> inputs, const Attributes& attributes, std::int64_t multiple);

template <std::int64_t multiple>
Values padded_to(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  return padded_channels(inputs, attributes, multiple);
}

/// Of conv_transpose2d and conv_transpose3d: as one convolution of size 1 (see subpixel.h).
Values subpixel_form(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes);

}  // namespace frit::ops
