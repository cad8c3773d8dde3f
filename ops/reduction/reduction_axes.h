#pragma once

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

class ReductionPlan;

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

/// The normalized axes of a call and its result's shape.
Dims reduction_axes(const InferContext& call);
Shape reduction_shape(const InferContext& call);
/// The axes where the rank is not input 0's.
Dims reduction_axes(const KernelContext& call, int rank);
/// How a CPU goes over input 0; and over the tensor that a call reduces, or whose gradient it gives.
ReductionPlan reduction_plan(const InferContext& call);
ReductionPlan reduction_plan(const KernelContext& call, const Tensor& input);

/// The result of a reduction over `axes`, or its gradient, with size 1 in their place: it broadcasts over `shape`, the input's.
Value restore_axes(Value reduced, const Shape& shape, const Dims& axes);

/// For Operator::with_unit_axis.
Attributes axes_around_unit_axis(const Attributes& attributes);

/// Emits an operator with ReductionAttributes, the axes normalized.
Value emit_reduction(const char* op, Value x, const Dims& axes, bool keep_dims);

}  // namespace frit::ops
