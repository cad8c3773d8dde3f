#pragma once

#include <string>

#include "frit/core/io/image.h"

namespace frit {

/// The image at the path as f32 (channels, height, width): each pixel is the mean of what it covers, weighted by distance. It is read row
/// by row, and nowhere in memory as a whole. `check` is asked before memory is taken for it.
Tensor read_resized_image(const std::string& path, std::int64_t height, std::int64_t width, const ShapeCheck& check);

}  // namespace frit
