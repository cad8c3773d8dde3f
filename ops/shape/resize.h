#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

enum class ResizeMode {
  nearest,  ///< PyTorch's "nearest": the element at floor(place * scale)
  linear,   ///< bi- and trilinear, too
  cubic,    ///< by Keys' kernel with a = -0.75 (R. Keys, "Cubic convolution interpolation for digital image processing", 1981)
};

/// One of size and scale_factor is needed, as one number an image axis or one for all.
struct ResizeOptions {
  Dims size = {};                         ///< of the result
  std::vector<double> scale_factor = {};  ///< size floor(input size * factor), at places that the factor gives
  ResizeMode mode = ResizeMode::nearest;
  bool align_corners = false;  ///< the outermost elements' centres, not their edges, stay where they are; not with nearest
};

/// input (N, C, ...) with image axes of other sizes: the values of PyTorch's F.interpolate, without smoothing before making smaller. An
/// element that counts nothing at a place is not read there: what is not finite stays where it is. Emits "resize", which is for images of
/// these sizes in batches of any.
Value resize(Value input, const ResizeOptions& options);

}  // namespace frit
