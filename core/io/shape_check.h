#pragma once

#include <functional>

#include "frit/core/shape.h"

namespace frit {

/// Throws for a shape that the caller does not take: what reads an array asks it before it takes memory for what a file declares. None:
/// every shape is taken.
using ShapeCheck = std::function<void(const Shape& shape)>;

}  // namespace frit
