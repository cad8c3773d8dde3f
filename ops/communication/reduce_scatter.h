#pragma once

#include "frit/ops/communication/all_reduce.h"

namespace frit::ops {

// The two halves of all_reduce, for those who work on a part of each tensor in between (see Parts); rules and limits are the same.

/// This process's part of the mean of each tensor, as a vector.
Values reduce_scatter(std::span<const Value> tensors, const Communicator& communicator);

/// Gives all processes every one's part of each variable, which others had not up to date.
void gather_parts(std::span<const Value> variables, const Communicator& communicator);

}  // namespace frit::ops
