#include "frit/ops/reduction/reduction_axes.h"

#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/image_axes.h"

namespace frit::ops {

Dims normalize_axes(const Dims& axes, int rank, const char* what) {
  unsigned named = 0;
  for (const std::int64_t given : axes) {
    const int axis = normalize_axis(given, std::max(rank, 1), what);
    const unsigned bit = 1u << axis;
    require((named & bit) == 0, what, ": axis ", axis, " is named twice");
    named |= bit;
  }
  Dims result;
  for (int axis = 0; axis < rank; ++axis) {
    if (axes.empty() || (named & (1u << axis)) != 0) result.push_back(axis);
  }
  return result;
}

Shape reduced_shape(const Shape& shape, const Dims& axes, bool keep_dims) {
  Shape result = shape;
  for (int i = axes.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(axes[i]);
    if (keep_dims) {
      result[axis] = 1;
    } else {
      result.erase(axis);
    }
  }
  return result;
}

Dims normalized_axes(const Operator& op, const ReductionAttributes& attributes, int rank) {
  return normalize_axes(attributes.axes, rank, op.name.c_str());
}

Dims normalized_axes(const Operator& op, std::int64_t axis, int rank) { return {normalize_axis(axis, rank, op.name.c_str())}; }

Shape reduction_shape(const InferContext& call) {
  return reduced_shape(call.shape(0), reduction_axes(call), call.as<ReductionAttributes>().keep_dims);
}

Value restore_axes(Value reduced, const Shape& shape, const Dims& axes) { return reshape(reduced, reduced_shape(shape, axes, true)); }

Attributes axes_around_unit_axis(const Attributes& attributes) {
  ReductionAttributes result = attributes.as<ReductionAttributes>();
  for (std::int64_t& axis : result.axes) axis = around_unit_axis(axis);
  return result;
}

Value emit_reduction(const char* op, Value x, const Dims& axes, bool keep_dims) {
  const Dims normalized = axes.empty() ? axes : normalize_axes(axes, x.rank(), op);
  return emit_one(op, {x}, ReductionAttributes{normalized, keep_dims});
}

}  // namespace frit::ops
