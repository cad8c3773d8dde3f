#pragma once

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

struct ReductionAttributes {
  Dims axes;  ///< empty: all
  bool keep_dims = false;
  void fields(FieldVisitor& v) {
    v.field("axes", axes);
    v.field("keep_dims", keep_dims);
  }
};

struct AxisReductionAttributes {
  std::int64_t axis = 0;
  bool keep_dims = false;
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("keep_dims", keep_dims);
  }
};

/// `axes` in order and from 0 on; all axes if none is named. Throws ErrorKind::argument, beginning with `what`, for one out of range or
/// named twice. A scalar takes axes 0 and -1, as in PyTorch.
Dims normalize_axes(const Dims& axes, int rank, const char* what);

/// `shape` without `axes` (normalized), or with size 1 there.
Shape reduced_shape(const Shape& shape, const Dims& axes, bool keep_dims);

/// Those of a call, in a tensor of this rank.
Dims normalized_axes(const Operator& op, const ReductionAttributes& attributes, int rank);
Dims normalized_axes(const Operator& op, std::int64_t axis, int rank);
/// Of an operator with attributes A, which name axes or one axis.
template <class A = ReductionAttributes, class Call>
Dims reduction_axes(const Call& call, int rank) {
  const A& attributes = call.template as<A>();
  if constexpr (std::is_same_v<A, ReductionAttributes>) {
    return normalized_axes(call.op, attributes, rank);
  } else {
    return normalized_axes(call.op, attributes.axis, rank);
  }
}
/// In input 0.
template <class A = ReductionAttributes>
Dims reduction_axes(const InferContext& call) {
  return reduction_axes<A>(call, call.shape(0).rank());
}
/// The shape of the result.
Shape reduction_shape(const InferContext& call);

/// The result of a reduction over `axes`, or its gradient, with size 1 in their place: it broadcasts over `shape`, the input's.
Value restore_axes(Value reduced, const Shape& shape, const Dims& axes);

/// For Operator::with_unit_axis.
Attributes axes_around_unit_axis(const Attributes& attributes);

/// Emits an operator with ReductionAttributes, the axes normalized.
Value emit_reduction(const char* op, Value x, const Dims& axes, bool keep_dims);

}  // namespace frit::ops
