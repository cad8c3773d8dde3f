#pragma once

#include <functional>
#include <string>

#include "frit/graph/graph.h"

namespace frit::graph {

/// The name of an operation's form; empty for the operation as it is.
using FormOf = std::function<std::string(const Node& operation)>;

/// The graph with its operations in other forms (see ops::Operator::forms), and through the forward pipeline again. An operation without a
/// form of the name that it is given, or to which that form does not apply, stays as it is.
Graph in_forms(const Graph& graph, const FormOf& form_of);

/// What a forward graph is compiled for.
struct Purpose {
  Device device;
  bool trained;                          ///< `complete` appends a gradient
  std::function<Graph(Graph)> complete;  ///< makes of the forward graph the one that will run
};

/// On a GPU: each operation that has other forms in the one with which the completed graph runs fastest. The forms of one operation after
/// another are tried on noise, in variables of their own, with cold caches; a decision is kept in the plan cache, for all calls of the
/// operator on these types that the same operators read. Calls that move little are left alone, and so is a CPU's graph. Where Numerics ask
/// for determinism nothing is tried: see in_likely_forms.
Graph choose_forms(const Graph& forward, const Purpose& purpose);

/// Each operation in the first of its forms that its operator takes for the fastest, by types and Numerics alone. Calls that move little
/// are left alone.
Graph in_likely_forms(const Graph& forward);

}  // namespace frit::graph
