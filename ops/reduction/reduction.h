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
Value softmax(Value x, std::int64_t axis);
Value log_softmax(Value x, std::int64_t axis);

/// `x` summed over the axes that broadcasting added to or stretched from `shape`.
Value sum_to(Value x, const Shape& shape);

}  // namespace frit
