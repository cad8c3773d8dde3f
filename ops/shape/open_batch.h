#pragma once

#include "frit/core/shape.h"

namespace frit::ops {

/// A shape for reshape or expand whose first size is left open, so that it follows the batch of the graph's inputs.
inline Shape open_batch(Shape shape) {
  const Shape others(std::span(shape.begin() + 1, shape.end()));
  if (element_count(others) > 0) shape[0] = -1;
  return shape;
}

}  // namespace frit::ops
