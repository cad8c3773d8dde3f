#pragma once

#include "frit/core/tensor.h"

namespace frit::ops {

/// A dense tensor's axes, the innermost last: as they are, or with the channel axis moved there.
inline Dims memory_order(const Tensor& tensor) {
  Dims axes;
  for (int axis = 0; axis < tensor.rank(); ++axis) axes.push_back(axis);
  if (!tensor.is_contiguous()) {
    FRIT_CHECK(tensor.is_contiguous(Layout::channels_last));
    axes.erase(1);
    axes.push_back(1);
  }
  return axes;
}

}  // namespace frit::ops
