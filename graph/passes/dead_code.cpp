#include <algorithm>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {

/// Keeps what an output or an update of a variable needs, and every input (a caller binds it by name) .
Graph remove_dead_code(const Graph& graph) {
  std::vector<bool> live(static_cast<std::size_t>(graph.value_count()), false);
  for (const Output& output : graph.outputs()) live[static_cast<std::size_t>(output.value)] = true;
  std::vector<bool> kept(graph.nodes().size(), false);
  for (std::size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    const bool updates = node.kind == NodeKind::operation && !node.op->mutates.empty();
    const bool read = std::any_of(node.outputs.begin(), node.outputs.end(), [&](int id) { return live[static_cast<std::size_t>(id)]; });
    kept[n] = updates || read || node.kind == NodeKind::input;
    if (!kept[n]) continue;
    for (const int id : node.inputs) live[static_cast<std::size_t>(id)] = true;
  }
  Rewriter rewriter(graph);
  for (std::size_t n = 0; n < kept.size(); ++n) {
    if (kept[n]) rewriter.copy(graph.nodes()[n]);
  }
  return rewriter.finish();
}

}  // namespace frit::graph
