#pragma once

#include "frit/core/fields.h"
#include "frit/ops/operator/value.h"

namespace frit::ops {

/// Of put_along_axis.
struct PutAttributes {
  std::int64_t axis = 0;
  std::int64_t size = 1;
  bool keep_dims = false;
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("size", size);
    v.field("keep_dims", keep_dims);
  }
};

/// The element of each line along `axis` that `indices` (i64) names: one index a line, so the axis is dropped, or has size 1 with
/// keep_dims.
Value take_along_axis(Value x, Value indices, std::int64_t axis, bool keep_dims);

/// Zeros of size `size` along `axis`, with each value where `indices` (of the values' shape) says: the gradient of take_along_axis.
Value put_along_axis(Value values, Value indices, std::int64_t axis, std::int64_t size, bool keep_dims);

}  // namespace frit::ops
