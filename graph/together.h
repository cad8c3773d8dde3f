#pragma once

#include <vector>

#include "frit/graph/graph.h"

namespace frit::graph {

/// By node index: the first node of the step that computes it. Operations of one operator that follow each other, leaves and views aside,
/// with equal attributes and dtypes and without waiting for each other, are one step where their kernel on the device computes several
/// calls together and they are all of the preparation, or none of them is; any other node is its own.
std::vector<int> first_of_steps(const Graph& graph, Device device);

/// The graph in another order, in which operations that can be one step follow each other, as far as no more memory is alive at once than
/// in the order given: casts of parameters come early, those of their gradients late. Where there is none, the graph as it is.
Graph bring_together(const Graph& graph, Device device);

}  // namespace frit::graph
