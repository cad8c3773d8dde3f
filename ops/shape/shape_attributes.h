#pragma once

#include "frit/core/fields.h"
#include "frit/core/shape.h"

namespace frit::ops {

struct CastAttributes {
  DType dtype = DType::f32;
  void fields(FieldVisitor& v) { v.field("dtype", dtype); }
};

struct PadAttributes {
  Dims before, after;  ///< elements added at each axis's ends
  double value = 0;
  void fields(FieldVisitor& v) {
    v.field("before", before);
    v.field("after", after);
    v.field("value", value);
  }
};

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
