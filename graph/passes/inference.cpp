#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {

Graph for_inference(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation || !node.op->at_inference) {
      rewriter.copy(node);
      continue;
    }
    const Values outputs = node.op->at_inference(rewriter.target(), rewriter(node.inputs), node.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
