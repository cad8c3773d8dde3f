#pragma once

#include <algorithm>
#include <cstdint>

#include "frit/core/dtype.h"
#include "frit/core/shape.h"
#include "frit/core/thread_pool.h"

namespace frit::ops {

// What the fused chains behind a convolution share.

/// A convolution's output (N, C, ...) with its image axes as one.
struct Planes {
  std::int64_t samples, channels, pixels;

  explicit Planes(const Shape& shape) : samples(shape[0]), channels(shape[1]), pixels(1) {
    for (int axis = 2; axis < shape.rank(); ++axis) pixels *= shape[axis];
  }
};

/// The dtype in which a forward kernel keeps which of `choices` elements a maximum was.
inline DType winner_dtype(std::int64_t choices) { return choices <= 256 ? DType::u8 : DType::i32; }

/// Calls `body` for the C++ type of a winner_dtype.
template <class Body>
void dispatch_winner(DType dtype, const Body& body) {
  if (dtype == DType::u8) {
    body.template operator()<std::uint8_t>();
  } else {
    body.template operator()<std::int32_t>();
  }
}

/// The grain for a loop over samples whose body has parallel loops of its own: a task a sample, or with fewer samples than threads, one task for all
/// of them, whose inner loops are then the parallel ones. Only for bodies whose results do not depend on the grain.
inline std::int64_t sample_grain(std::int64_t samples) { return samples >= thread_count() ? 1 : std::max<std::int64_t>(samples, 1); }

}  // namespace frit::ops
