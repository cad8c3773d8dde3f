#pragma once

#include "frit/graph/graph.h"

namespace frit {

/// Appends to the graph of `outputs` the gradient of sum(outputs[i] * seeds[i]) with respect to each of `with_respect_to`, one value each,
/// of the same type: an expanded zero where nothing flows, or where the outputs do not show what a value adds (a bias before a norm; see
/// graph::Influences). Each operator's rule says its own part; autograd checks the number of gradients, sums them back over broadcast axes,
/// and adds them in graph order. Throws ErrorKind::argument for an operator on the way that has no gradient, saying why, and for values of
/// another graph.
Values gradient(std::span<const Value> outputs, std::span<const Value> seeds, std::span<const Value> with_respect_to);

/// The same, but "none" in the place of a zero.
Values gradient_or_none(std::span<const Value> outputs, std::span<const Value> seeds, std::span<const Value> with_respect_to);

/// `gradient` for one scalar output and seed 1.
Values gradient(Value loss, std::span<const Value> with_respect_to);

}  // namespace frit
