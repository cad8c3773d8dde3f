#pragma once

#include "frit/core/communication/communicator.h"
#include "frit/ops/operator/value.h"

namespace frit::ops {

inline constexpr std::size_t most_reduced_together = 64;

/// The mean of each of at most `most_reduced_together` tensors over the processes of the communicator, which must live as long as the graph
/// runs. All processes compute the calls of their graphs in the same order. Throws ErrorKind::argument for tensors that are not floating.
Values all_reduce(std::span<const Value> tensors, const Communicator& communicator);

// The two halves of all_reduce, for those who work on a part of each tensor in between (see Parts); rules and limits are the same.

/// This process's part of the mean of each tensor, as a vector.
Values reduce_scatter(std::span<const Value> tensors, const Communicator& communicator);

/// Gives all processes every one's part of each variable, which others had not up to date.
void gather_parts(std::span<const Value> variables, const Communicator& communicator);

}  // namespace frit::ops
