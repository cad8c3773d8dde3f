#pragma once

#include "frit/core/fields.h"
#include "frit/core/shape.h"

namespace frit::ops {

struct PadAttributes {
  Dims before, after;  ///< elements added at each axis's ends
  double value = 0;
  void fields(FieldVisitor& v) {
    v.field("before", before);
    v.field("after", after);
    v.field("value", value);
  }
};

struct SliceAttributes {
  std::int64_t axis = 0, begin = 0, end = INT64_MAX, step = 1;
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("begin", begin);
    v.field("end", end);
    v.field("step", step);
  }
};

/// A slice of one axis with its bounds resolved: `count` elements from `begin` on.
struct SliceRange {
  int axis;
  std::int64_t begin, end, step, count;
};
SliceRange resolve(const Shape& shape, const SliceAttributes& attributes);

struct SliceBackwardAttributes {
  std::int64_t axis = 0, begin = 0, step = 1;
  std::int64_t size = 0;  ///< of the axis that was sliced
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("begin", begin);
    v.field("step", step);
    v.field("size", size);
  }
};

}  // namespace frit::ops
