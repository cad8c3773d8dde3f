#pragma once

#include <vector>

#include "frit/core/device.h"
#include "frit/graph/graph.h"

namespace frit::graph {

/// How each value, by id, lies in memory: contiguous, or channels-last where a GPU runs, the operator that makes the value and all that
/// read it take either layout, and nobody outside the graph reads it. cuDNN is fastest in channels-last.
std::vector<Layout> choose_layouts(const Graph& graph, Device device);

}  // namespace frit::graph
