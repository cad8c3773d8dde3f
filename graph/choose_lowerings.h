#pragma once

#include <functional>
#include <string>

#include "frit/graph/pipeline.h"

namespace frit::graph {

/// The name of an operation's lowering; empty for the operation as it is.
using LoweringOf = std::function<std::string(const Node& operation)>;

/// The graph with its operations lowered (see ops::Operator::lowerings), and through the passes after that. An operation without a
/// lowering of the name that it is given, or to which that lowering does not apply, stays as it is.
Graph apply_lowerings(const Graph& graph, const LoweringOf& lowering_of, std::span<const Pass> passes = forward_pipeline());

/// What a graph is compiled for.
struct Purpose {
  Device device;
  bool trained;                          ///< there is or will be a gradient
  std::function<Graph(Graph)> complete;  ///< makes of the graph the one that will run
};

/// On a GPU, after align_scores: each operation of a forward graph that has lowerings with the one with which the completed graph runs
/// fastest, as the plan cache knows or an exhaustive search finds, if Numerics ask for one, and else with the likely one: see
/// apply_likely_lowerings. In a search the lowerings of one operation after another are tried on noise, in variables of their own, with
/// cold caches; the preparation does not count. A decision is kept in the plan cache, for all calls of the operator on these types that
/// the same operators read. Calls that move little are left alone, and so is a CPU's graph. Where Numerics ask for determinism the plan
/// cache is not read either.
Graph choose_lowerings(const Graph& forward, const Purpose& purpose);

/// Likewise of a graph with its gradient, not yet cleaned up: the operations that compute gradients. They choose for themselves, whatever
/// the lowering of the operation that they are the gradient of.
Graph choose_gradient_lowerings(const Graph& graph, const Purpose& purpose);

/// By types and Numerics alone, after align_scores: each operation with the lowering that lets what follows be fused so that a good part
/// of its bytes is not moved, else with the first that its operator takes for the fastest. Calls that move little are left alone, and so
/// are operations that compute gradients. The result has been through `passes`.
Graph apply_likely_lowerings(const Graph& forward, std::span<const Pass> passes = forward_pipeline());

}  // namespace frit::graph
