#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Reductions over `axes` (negative ones count from the end; none given: all axes), which are dropped unless keep_dims. Operator names are
// the functions'; attributes: axes, keep_dims.
Value sum(Value x, const Dims& axes = {}, bool keep_dims = false);   ///< 0 over nothing
Value mean(Value x, const Dims& axes = {}, bool keep_dims = false);  ///< NaN over nothing
/// NaN wins. Given exactly one axis, the first of equal maxima has the whole gradient (torch.max(x, dim)); otherwise equal maxima share it
/// evenly (torch.amax). Throws for an empty axis.
Value max(Value x, const Dims& axes = {}, bool keep_dims = false);
Value min(Value x, const Dims& axes = {}, bool keep_dims = false);
/// log(sum(exp(x))) shifted by the maximum; -inf over nothing.
Value logsumexp(Value x, const Dims& axes, bool keep_dims = false);
/// The first index (i64) of the maximum over one axis; the first NaN wins.
Value argmax(Value x, std::int64_t axis, bool keep_dims = false);
Value argmin(Value x, std::int64_t axis, bool keep_dims = false);  ///< of the minimum, likewise
Value softmax(Value x, std::int64_t axis);
Value log_softmax(Value x, std::int64_t axis);
/// The sum of the elements up to each (exclusive: before it), or with `reverse` from it (after it) on, along an axis. Integers sum to i64.
Value cumulative_sum(Value x, std::int64_t axis, bool exclusive = false, bool reverse = false);

/// `x` summed over the axes that broadcasting added to or stretched from `shape`.
Value sum_to(Value x, const Shape& shape);

// Made of the operators above.

/// The mean square distance from the mean, divided by n - correction in place of n: 1 for the unbiased estimate, 0 for the mean itself. In
/// two passes, so that it is exact far from zero. Infinite or NaN where n <= correction.
Value variance(Value x, const Dims& axes = {}, bool keep_dims = false, std::int64_t correction = 1);
/// Its root; gradient 0 where it is 0.
Value standard_deviation(Value x, const Dims& axes = {}, bool keep_dims = false, std::int64_t correction = 1);
/// The root of the sum of squares; gradient 0 where it is 0.
Value l2_norm(Value x, const Dims& axes = {}, bool keep_dims = false);

}  // namespace frit
