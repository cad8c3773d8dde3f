#pragma once

#include <vector>

#include "frit/graph/graph.h"

namespace frit::graph {

/// By node index: the preparation, operations that give the same in every run as long as the variables keep their contents. They depend on
/// constants, on variables that the graph does not update (as what draws random numbers does with its counter) and on each other, and give
/// no output of the graph. What gives much more than it reads, such as an expansion, is left to the runs: its result would take its memory
/// throughout.
std::vector<bool> find_preparation(const Graph& graph);

/// By value id: what is the same in every run, as the preparation's results and what they are computed from.
std::vector<bool> fixed_values(const Graph& graph);

/// By value id: outputs of the graph, and what they are views of. Who reads a run's results may write there too.
std::vector<bool> given_values(const Graph& graph);

/// The graph in another order: leaves, the preparation, everything else. Where there is no preparation, the graph as it is.
Graph bring_preparation_first(const Graph& graph);

}  // namespace frit::graph
