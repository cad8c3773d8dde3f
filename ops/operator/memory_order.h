#pragma once

#include "frit/core/tensor.h"

namespace frit::ops {

/// The axes of a dense tensor, or a part of one's channels, the innermost last: as they are, or with the channel axis moved there.
inline Dims memory_order(const Tensor& tensor) {
  Dims axes;
  for (int axis = 0; axis < tensor.rank(); ++axis) axes.push_back(axis);
  if (!tensor.is_contiguous()) {
    FRIT_CHECK(tensor.pixel_pitch() > 0);
    axes.erase(1);
    axes.push_back(1);
  }
  return axes;
}

}  // namespace frit::ops
