#pragma once

#include <string>
#include <vector>

#include "frit/graph/graph.h"

namespace frit::graph {

/// What a change of one value does to some values of a graph.
struct Influence {
  bool shows = true;           ///< it may; false: it does not, but for rounding
  bool exact = true;           ///< nor would it by a norm's eps
  std::string hidden_by = {};  ///< "what it adds, instance_norm (%6) takes away again"; empty: no way leads there
};

/// Tells what hides, by what the operators say of themselves (see ops::LinearInput and ops::Invariance): all that a value does on its way
/// is to shift or scale what does not show it. For a graph as it is now.
class Influences {
 public:
  /// On these values, by id.
  Influences(const Graph& graph, std::span<const int> outputs);

  Influence of(int value) const;

 private:
  const Graph& graph_;
  std::vector<std::vector<int>> readers_;  // by value id: indices of the nodes that read it and lead to the outputs
  std::vector<bool> leads_, is_output_;    // by value id: to an output
};

}  // namespace frit::graph
