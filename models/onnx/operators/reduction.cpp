#include <algorithm>
#include <cmath>

#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

using Reduce = Value (*)(Value, const Dims&, bool);

/// Axes are an attribute, and an input since opset 13 or 18. What a reduction over none of them is: over all, or the input as it is.
template <Reduce function>
Values reduced(const Call& call) {
  const Value x = call[0];
  const Sizes given = call.integers("axes", 1).value_or(Sizes());
  const bool nothing = given.empty() && call.integer("noop_with_empty_axes", 0) != 0;
  const bool keep_dims = call.integer("keepdims", 1) != 0;
  const Value wide = as_floating(x);
  if (nothing) return {x};
  return {cast(function(wide, axes_of(given, x.rank()), keep_dims), x.dtype())};
}

// An extremum of nothing is an infinity.
bool is_empty(Value x, const Dims& axes) {
  return std::any_of(axes.begin(), axes.end(), [x](std::int64_t axis) { return x.dim(axis) == 0; });
}
Value largest(Value x, const Dims& axes, bool keep) { return is_empty(x, axes) ? sum(x, axes, keep) - HUGE_VAL : max(x, axes, keep); }
Value smallest(Value x, const Dims& axes, bool keep) { return is_empty(x, axes) ? sum(x, axes, keep) + HUGE_VAL : min(x, axes, keep); }

Value sum_of(Value x, const Dims& axes, bool keep) { return sum(x, axes, keep); }
Value sum_of_squares(Value x, const Dims& axes, bool keep) { return sum(square(x), axes, keep); }
Value norm1(Value x, const Dims& axes, bool keep) { return sum(abs(x), axes, keep); }
Value log_of_sum(Value x, const Dims& axes, bool keep) { return log(sum(x, axes, keep)); }

/// Halves multiplied with each other until one is left.
Value product_along(Value x, int axis) {
  if (x.dim(axis) == 0) return sum(x, {axis}, true) + 1;
  while (x.dim(axis) > 1) {
    const std::int64_t size = x.dim(axis), half = size / 2;
    const Value pairs = slice(x, axis, 0, half) * slice(x, axis, half, 2 * half);
    x = size % 2 == 0 ? pairs : concatenate(Values{pairs, slice(x, axis, size - 1, size)}, axis);
  }
  return x;
}

Value product(Value x, const Dims& axes, bool keep) {
  for (const std::int64_t axis : axes) x = product_along(x, static_cast<int>(axis));
  return keep || axes.empty() ? x : squeeze(x, axes);
}

/// The first of equal extrema, or the last.
Values extremum_index(const Call& call, bool of_least) {
  const Value x = of_least ? -as_floating(call[0]) : as_floating(call[0]);
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  const bool keep_dims = call.integer("keepdims", 1) != 0;
  if (call.integer("select_last_index", 0) == 0) return {argmax(x, axis, keep_dims)};
  const Value places = positions(call, x.dim(axis), axis, x.rank(), DType::i64);
  const Value is_largest = equal(x, max(x, axis, /*keep_dims=*/true));
  return {max(where(is_largest, places, ops::scalar(places, -1)), axis, keep_dims)};
}

/// Opsets before 13 see all axes from `axis` on as one.
template <Value (*function)(const Call&, Value, std::int64_t)>
Values along_axis(const Call& call) {
  const Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", call.opset() < 13 ? 1 : -1), x.rank(), "axis");
  if (call.opset() >= 13 || axis == x.rank() - 1) return {function(call, x, axis)};
  return {reshape(function(call, flatten(x, axis, -1), axis), x.shape())};
}

Value softmax_of(const Call&, Value x, std::int64_t axis) { return softmax(x, axis); }
Value log_softmax_of(const Call&, Value x, std::int64_t axis) { return log_softmax(x, axis); }
/// One at the first maximum, zero elsewhere.
Value hardmax(const Call& call, Value x, std::int64_t axis) {
  const Value places = positions(call, x.dim(axis), static_cast<int>(axis), x.rank(), DType::i64);
  return cast(equal(places, argmax(x, axis, /*keep_dims=*/true)), x.dtype());
}

}  // namespace

void add_reductions(OperatorTable& table) {
  table["ReduceSum"] = reduced<sum_of>;
  table["ReduceMean"] = reduced<mean>;
  table["ReduceMax"] = reduced<largest>;
  table["ReduceMin"] = reduced<smallest>;
  table["ReduceProd"] = reduced<product>;
  table["ReduceL1"] = reduced<norm1>;
  table["ReduceL2"] = reduced<l2_norm>;
  table["ReduceLogSum"] = reduced<log_of_sum>;
  table["ReduceLogSumExp"] = reduced<logsumexp>;
  table["ReduceSumSquare"] = reduced<sum_of_squares>;
  table["ArgMax"] = [](const Call& call) { return extremum_index(call, /*of_least=*/false); };
  table["ArgMin"] = [](const Call& call) { return extremum_index(call, /*of_least=*/true); };
  table["Softmax"] = along_axis<softmax_of>;
  table["LogSoftmax"] = along_axis<log_softmax_of>;
  table["Hardmax"] = along_axis<hardmax>;
}

}  // namespace frit::onnx
