#pragma once

#include "frit/core/fields.h"
#include "frit/core/tensor.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// Of put_along_axis.
struct PutAttributes {
  std::int64_t axis = 0;
  std::int64_t size = 1;
  bool keep_dims = false;
  bool distinct = false;  ///< no line's indices repeat: nothing need be added
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("size", size);
    v.field("keep_dims", keep_dims);
    v.field("distinct", distinct);
  }
};

/// The elements of each line of x along `axis` that `indices` (i64) name. With keep_dims the indices have x's axes: any number of them
/// along `axis`, and elsewhere x's sizes, or 1 where all lines share them; that number is the result's size there. Without, there is one
/// index a line, and the axis is dropped.
Value take_along_axis(Value x, Value indices, std::int64_t axis, bool keep_dims);

/// Zeros of size `size` along `axis`, to which each value is added where its index, given likewise, says: the gradient of take_along_axis.
/// In the same order at every run.
Value put_along_axis(Value values, Value indices, std::int64_t axis, std::int64_t size, bool keep_dims, bool distinct = false);

/// Checks the indices of a call whose lines lie in `whole`; gives the values' shape, the axis kept, and which axis it is.
std::pair<Shape, int> indexed_shape(const InferContext& call, const Shape& whole, std::int64_t axis, bool keep_dims);

/// Values (the axis kept) and their indices, as loops pass over them.
struct IndexedValues {
  int axis;
  Shape shape;
  Strides indices;  ///< 0 where the indices have size 1

  /// Of lines that lie in `whole`.
  IndexedValues(const Shape& whole, std::int64_t line_axis, bool keep_dims, const Tensor& given);
};

}  // namespace frit::ops
