#pragma once

#include <algorithm>
#include <cstdint>

#include "frit/core/thread_pool.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/planes.h"

namespace frit::ops {

// What the fused chains after a convolution share.

/// The dtype in which a forward kernel keeps which of `choices` elements a maximum was.
inline DType argmax_dtype(std::int64_t choices) { return choices <= 256 ? DType::u8 : DType::i32; }

/// Calls `body` for the C++ type of an argmax_dtype.
template <class Body>
void dispatch_argmax(DType dtype, const Body& body) {
  if (dtype == DType::u8) {
    body.template operator()<std::uint8_t>();
  } else {
    body.template operator()<std::int32_t>();
  }
}

/// The grain for a loop over samples whose body has parallel loops of its own: a task a sample, or with fewer samples than threads, one
/// task for all of them, whose inner loops are then the parallel ones. Only for bodies whose results do not depend on the grain.
inline std::int64_t sample_grain(std::int64_t samples) { return samples >= thread_count() ? 1 : std::max<std::int64_t>(samples, 1); }

inline void require_type(const InferContext& call, std::size_t input, const TensorType& expected) {
  call.require(call.inputs[input] == expected, call.op.inputs[input].name, " must be ", expected, ", got ", call.inputs[input]);
}

/// A parameter of the shape, of the data's dtype or in float32 with halves.
inline void require_parameter(const InferContext& call, std::size_t input, DType dtype, const Shape& shape) {
  const bool wide = is_half(dtype) && call.inputs[input].dtype == DType::f32;
  require_type(call, input, {wide ? DType::f32 : dtype, shape});
}

/// Means or reciprocal deviations, as an input of a backward operator.
inline SampleInput statistics_sample(const Shape& shape) { return SampleInput::of(DType::f64, shape, Fill::positive); }

}  // namespace frit::ops
