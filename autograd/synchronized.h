#pragma once

#include "frit/core/communication/communicator.h"
#include "frit/graph/graph.h"

namespace frit {

/// A forward graph whose statistics of a batch are over the batches of all processes (see ops::synchronized).
Graph synchronized(const Graph& graph, const Communicator& communicator);

/// Throws ErrorKind::argument in all processes unless their graphs of a step have inputs of the same types and make the calls that
/// processes compute together in the same order.
void require_same_calls(const Graph& graph, Communicator& communicator);

}  // namespace frit
