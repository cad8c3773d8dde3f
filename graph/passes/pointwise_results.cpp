#include <algorithm>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// By value: an elementwise operation, which its producer could be computed with, reads it.
std::vector<bool> read_elementwise(const Graph& graph) {
  std::vector<bool> result(static_cast<std::size_t>(graph.value_count()), false);
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation || !node.op->elementwise || !node.op->mutates.empty()) continue;
    for (const int id : node.inputs) {
      if (graph.type(id).shape == graph.type(node.outputs[0]).shape) result[static_cast<std::size_t>(id)] = true;
    }
  }
  return result;
}

}  // namespace

Graph spell_pointwise_results(const Graph& graph) {
  const std::vector<bool> is_read = read_elementwise(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    if (node.kind != NodeKind::operation || !node.op->pointwise || !is_read[static_cast<std::size_t>(node.outputs[0])]) continue;
    const Value spelled = node.op->pointwise(rewriter(node.inputs), rewriter(node.outputs), node.attributes);
    if (!spelled) continue;
    FRIT_CHECK(spelled.type() == graph.type(node.outputs[0]));
    rewriter.map(node.outputs[0], spelled);
  }
  return rewriter.finish();
}

}  // namespace frit::graph
