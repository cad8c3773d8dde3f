#pragma once

#include <functional>
#include <string>

#include "frit/graph/pipeline.h"

namespace frit::graph {

/// The name of an operation's form; empty for the operation as it is.
using FormOf = std::function<std::string(const Node& operation)>;

/// The graph with its operations in other forms (see ops::Operator::forms), and through the passes after that. An operation without a form
/// of the name that it is given, or to which that form does not apply, stays as it is.
Graph in_forms(const Graph& graph, const FormOf& form_of, std::span<const Pass> passes = forward_pipeline());

/// What a graph is compiled for.
struct Purpose {
  Device device;
  bool trained;                          ///< there is or will be a gradient
  std::function<Graph(Graph)> complete;  ///< makes of the graph the one that will run
};

/// On a GPU: each operation of a forward graph that has other forms in the one with which the completed graph runs fastest. The forms of
/// one operation after another are tried on noise, in variables of their own, with cold caches; a decision is kept in the plan cache, for
/// all calls of the operator on these types that the same operators read. Calls that move little are left alone, and so is a CPU's graph.
/// Where Numerics ask for determinism nothing is tried: see in_likely_forms.
Graph choose_forms(const Graph& forward, const Purpose& purpose);

/// Likewise of a graph with its gradient, not yet cleaned up: the operations that compute gradients. They choose for themselves, whatever
/// the form that they are the gradient of.
Graph choose_gradient_forms(const Graph& graph, const Purpose& purpose);

/// By types and Numerics alone: each operation in the form with which what follows is fused so that a good part of its bytes is not moved,
/// else in the first that its operator takes for the fastest. Calls that move little are left alone, and so are operations that compute
/// gradients. The result has been through `passes`.
Graph in_likely_forms(const Graph& forward, std::span<const Pass> passes = forward_pipeline());

}  // namespace frit::graph
