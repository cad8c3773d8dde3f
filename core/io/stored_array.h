#pragma once

#include <cstdint>

#include "frit/core/dtype.h"
#include "frit/core/shape.h"

namespace frit {

/// Where an array's elements lie in a file, in row-major order.
struct StoredArray {
  DType dtype = DType::f32;
  Shape shape = {};
  std::uint64_t offset = 0;  ///< of its first byte
  bool swapped = false;      ///< in big-endian order
};

}  // namespace frit
