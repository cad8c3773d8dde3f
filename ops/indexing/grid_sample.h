#pragma once

#include "frit/ops/operator/value.h"
#include "frit/ops/shape/resize.h"

namespace frit {

struct GridSampleOptions {
  enum class Padding {
    zeros,      ///< what lies outside of the image is 0
    border,     ///< ... is the nearest element of its border
    reflection  ///< ... is its mirror image
  };
  ResizeMode mode = ResizeMode::linear;
  Padding padding = Padding::zeros;
  bool align_corners = false;  ///< -1 and 1 are the outermost elements' centres, not their edges
};

/// The image x (N, C, image axes) at the places that `grid` (N, the result's image axes, one number an image axis, the last axis' first)
/// names, from -1 to 1 over each of x's axes: (N, C, the result's image axes), with a gradient for both, as PyTorch's F.grid_sample. Made
/// of other operators, for images of this size in batches of any. A place that is not a number, or infinite where the padding reflects, is
/// an error on the CPU, as an index is that names nothing.
Value grid_sample(Value x, Value grid, const GridSampleOptions& options = {});

}  // namespace frit
