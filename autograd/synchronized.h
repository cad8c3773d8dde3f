#pragma once

#include "frit/core/communication/communicator.h"
#include "frit/graph/graph.h"

namespace frit {

/// A forward graph whose statistics of a batch are over the batches of all processes (see ops::synchronized).
Graph synchronized(const Graph& graph, const Communicator& communicator);

}  // namespace frit
