#pragma once

#include <vector>

#include "frit/core/device.h"
#include "frit/graph/graph.h"

namespace frit::graph {

/// The graph with a conversion, an operation that copies its input, wherever an image had better lie in another layout for some of those
/// that read it. Kernels that prefer channels-last get their images so, and others theirs contiguous; between them conversions stand where
/// they move the fewest bytes, and none where an elementwise operation can write the other layout. The graph's outputs are contiguous on a
/// CPU, and on a GPU lie as they are computed.
Graph convert_layouts(const Graph& graph, Device device);

/// How each value, by id, lies in memory: contiguous, or channels-last where the operator that makes the value and all that read it take
/// either layout. Fits a graph of convert_layouts best.
std::vector<Layout> choose_layouts(const Graph& graph, Device device);

/// Whether the operation's output 0 is its input 0 as it lies in memory, for values in these layouts: no kernel need run.
bool gives_a_view(const Graph& graph, const Node& operation, const std::vector<Layout>& layouts);

}  // namespace frit::graph
