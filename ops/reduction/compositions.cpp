#include <algorithm>

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

/// The square root, with a gradient of 0 at 0.
Value root(Value x) {
  const Value zero = equal(x, 0.0);
  return where(zero, 0.0, sqrt(where(zero, 1.0, x)));
}

}  // namespace

Value variance(Value x, const Dims& axes, bool keep_dims, std::int64_t correction) {
  const Dims over = ops::normalize_axes(axes, x.rank(), "variance");
  const Value squares = square(x - mean(x, axes, /*keep_dims=*/true));
  if (correction == 0) return mean(squares, axes, keep_dims);
  // The number of elements of a run, which may have other sizes: of one for each that is a number or is none.
  Value counted = x;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (std::find(over.begin(), over.end(), axis) == over.end()) counted = slice(counted, axis, 0, 1);
  }
  const DType dtype = is_half(x.dtype()) ? DType::f32 : x.dtype();
  const Value count = sum(cast(logical_or(equal(counted, counted), not_equal(counted, counted)), dtype));
  const Value total = cast(sum(squares, axes, keep_dims), dtype);
  return cast(total / maximum(count - static_cast<double>(correction), ops::scalar(count, 0)), x.dtype());
}

Value standard_deviation(Value x, const Dims& axes, bool keep_dims, std::int64_t correction) {
  return root(variance(x, axes, keep_dims, correction));
}

Value l2_norm(Value x, const Dims& axes, bool keep_dims) { return root(sum(square(x), axes, keep_dims)); }

}  // namespace frit
