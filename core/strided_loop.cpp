#include "frit/core/strided_loop.h"

namespace frit {

void collapse_axes(Shape& shape, std::span<Strides> strides) {
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const bool only_one = shape[axis] == 1;
    bool joins_next = axis + 1 < shape.rank();
    for (const Strides& s : strides) joins_next = joins_next && s[axis] == s[axis + 1] * shape[axis + 1];
    if (!only_one && !joins_next) continue;
    if (only_one) {
      if (shape.rank() == 1) break;
      shape.erase(axis);
      for (Strides& s : strides) s.erase(axis);
    } else {
      shape[axis] *= shape[axis + 1];
      shape.erase(axis + 1);
      for (Strides& s : strides) {
        s[axis] = s[axis + 1];
        s.erase(axis + 1);
      }
    }
  }
  if (shape.rank() == 0) {
    shape.push_back(1);
    for (Strides& s : strides) s.push_back(0);
  }
}

}  // namespace frit
