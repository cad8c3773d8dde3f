#pragma once

#include "frit/core/communication/communicator.h"
#include "frit/graph/graph.h"

namespace frit {

/// Gradients that are reduced in one call hold at most so many bytes: enough for the links' whole bandwidth, and few enough that the first
/// travel while most of the rest is yet to be computed.
inline constexpr std::int64_t bucket_bytes = 25 << 20;

/// The means of the gradients over all processes, in buckets in the order in which the graph computes them. Those that were halves before a
/// cast travel so if `in_halves`.
Values reduced_gradients(const Values& gradients, const Communicator& communicator, bool in_halves);
/// Likewise this process's parts of them, as vectors.
Values parts_of_reduced_gradients(const Values& gradients, const Communicator& communicator, bool in_halves);
/// Gives all processes every one's part of the parameters, in such buckets.
void gather_parameters(const Values& parameters, const Communicator& communicator);

}  // namespace frit
