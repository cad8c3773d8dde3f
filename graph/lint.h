#pragma once

#include <string>
#include <vector>

#include "frit/graph/graph.h"

namespace frit::graph {

/// A parameter that training cannot improve.
struct LintFinding {
  std::string parameter;
  std::string reason;  ///< "what it adds, instance_norm (%6) takes away again"
};

/// Trainable variables whose gradient is zero, or would be but for rounding and a norm's eps: the output of that name does not show them
/// (see Influences), or no way leads there. What is not sure is not reported. For a graph as it was written, before any pass.
std::vector<LintFinding> lint(const Graph& graph, std::string_view output);

}  // namespace frit::graph
