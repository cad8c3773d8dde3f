#pragma once

#include "frit/core/shape.h"

namespace frit::ops {

/// A convolution's output (N, C, ...) with its image axes as one.
struct Planes {
  std::int64_t samples, channels, pixels;

  explicit Planes(const Shape& shape) : samples(shape[0]), channels(shape[1]), pixels(1) {
    for (int axis = 2; axis < shape.rank(); ++axis) pixels *= shape[axis];
  }
};

}  // namespace frit::ops
