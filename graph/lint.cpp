#include "frit/graph/lint.h"

#include <algorithm>

#include "frit/graph/influence.h"

namespace frit::graph {

std::vector<LintFinding> lint(const Graph& graph, std::string_view output) {
  const auto named = std::find_if(graph.outputs().begin(), graph.outputs().end(), [&](const Output& o) { return o.name == output; });
  require(named != graph.outputs().end(), "lint: the graph has no output \"", output, '"');
  const Influences influences(graph, std::span(&named->value, 1));
  std::vector<LintFinding> findings;
  for (const Node* node : graph.all(NodeKind::variable)) {
    if (!node->trainable) continue;
    const Influence influence = influences.of(node->outputs[0]);
    if (influence.shows) continue;
    findings.push_back({node->name, influence.hidden_by.empty() ? concat("no way leads from it to \"", output, '"') : influence.hidden_by});
  }
  return findings;
}

}  // namespace frit::graph
