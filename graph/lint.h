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

/// Trainable variables whose gradient is zero, or would be but for rounding and a norm's eps, by what the operators say of themselves (see
/// ops::LinearInput and ops::Invariance): all that they do on their way to the output of that name is to shift or scale what does not show
/// it, or no way leads there. What is not sure is not reported. For a graph as it was written, before any pass.
std::vector<LintFinding> lint(const Graph& graph, std::string_view output);

}  // namespace frit::graph
