#pragma once

#include "frit/core/fields.h"
#include "frit/core/half.h"
#include "frit/core/shape.h"

namespace frit::ops {

struct SortAttributes {
  std::int64_t axis = -1;
  bool descending = false;
  std::int64_t count = -1;  ///< of each line's first elements, which are kept; -1: all
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("descending", descending);
    v.field("count", count);
  }
};

/// A contiguous tensor's lines along one axis: (outer, size, inner), of which `count` elements a line are kept.
struct SortedLines {
  std::int64_t outer = 1, size, inner = 1, count;

  SortedLines(const Shape& shape, const SortAttributes& attributes) {
    const int axis = normalize_axis(attributes.axis, shape.rank(), "sort");
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
    size = shape[axis];
    count = attributes.count < 0 ? size : attributes.count;
  }
  FRIT_HOST_DEVICE std::int64_t lines() const { return outer * inner; }
};

}  // namespace frit::ops
