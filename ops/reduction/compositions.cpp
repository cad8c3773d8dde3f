#include <limits>

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/take_along_axis.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

/// The square root, with a gradient of 0 at 0.
Value root(Value x) {
  const Value zero = equal(x, 0.0);
  return where(zero, 0.0, sqrt(where(zero, 1.0, x)));
}

Value as_indices(Value indices, const char* what) {
  require(indices.dtype() == DType::i64 || indices.dtype() == DType::i32, what, ": indices must be i64 or i32, got ", indices.type());
  return cast(indices, DType::i64);
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

Value cumulative_sum(Value x, std::int64_t axis) {
  const int along = normalize_axis(axis, x.rank(), "cumulative_sum");
  const Dims none = Dims::filled(x.rank(), 0);
  for (std::int64_t shift = 1; shift < x.dim(along); shift *= 2) {
    Dims before = none;
    before[along] = shift;
    x = x + pad(slice(x, along, 0, x.dim(along) - shift), before, none);
  }
  return x;
}

Value one_hot(Value indices, std::int64_t classes, DType dtype, std::int64_t axis) {
  require(classes >= 0, "one_hot: classes must not be negative, got ", classes);
  const Value places = as_indices(indices, "one_hot");
  return ops::put_along_axis(cast(equal(places, places), dtype), places, normalize_axis(axis, indices.rank() + 1, "one_hot"), classes,
                             /*keep_dims=*/false);
}

Value gather(Value x, std::int64_t axis, Value indices) {
  const int along = normalize_axis(axis, x.rank(), "gather");
  Shape expected = x.shape();
  if (indices.rank() == x.rank()) expected[along] = indices.dim(along);
  require(indices.shape() == expected, "gather: indices must have the input's shape ", x.shape(), " but for axis ", along, ", got ",
          indices.shape());
  std::vector<Size> lines = ops::sizes_of(x);
  lines.insert(lines.begin() + along, size_of(indices, along));
  return ops::take_along_axis(ops::expand_to(unsqueeze(x, along), lines), as_indices(indices, "gather"), along + 1, /*keep_dims=*/false);
}

TopK top_k(Value x, std::int64_t k, std::int64_t axis) {
  const int along = normalize_axis(axis, x.rank(), "top_k");
  const std::int64_t size = x.dim(along);
  require(is_floating(x.dtype()), "top_k: input is ", x.dtype(), ", expected a floating dtype");
  require(k > 0 && k <= size, "top_k: k must be in [1, ", size, "], got ", k, " (input ", x.shape(), ")");
  Values values, indices;
  Value taken = less(x, x);  // none
  while (static_cast<std::int64_t>(indices.size()) < k) {
    const Value greatest = argmax(where(taken, -std::numeric_limits<double>::infinity(), x), along, /*keep_dims=*/true);
    // Where only -inf is left, it may be one that was taken.
    const Value again = ops::take_along_axis(taken, greatest, along, /*keep_dims=*/true);
    indices.push_back(where(again, argmin(taken, along, /*keep_dims=*/true), greatest));
    values.push_back(ops::take_along_axis(x, indices.back(), along, /*keep_dims=*/true));
    const Value one = equal(indices.back(), indices.back());
    taken = taken + ops::put_along_axis(one, indices.back(), along, size, /*keep_dims=*/true);
  }
  return {concatenate(values, along), concatenate(indices, along)};
}

}  // namespace frit
