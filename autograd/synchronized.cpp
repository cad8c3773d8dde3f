#include "frit/autograd/synchronized.h"

#include "frit/graph/rewriter.h"
#include "frit/ops/norm/synchronized.h"

namespace frit {

Graph synchronized(const Graph& graph, const Communicator& communicator) {
  graph::Rewriter rewriter(graph);
  for (const graph::Node& node : graph.nodes()) {
    const bool operation = node.kind == graph::NodeKind::operation;
    const auto call = operation ? ops::synchronized({node.op, node.attributes}, communicator) : std::nullopt;
    if (!call) {
      rewriter.copy(node);
      continue;
    }
    const Values outputs = rewriter.target().emit(*call->op, rewriter(node.inputs), call->attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
  }
  return rewriter.finish();
}

}  // namespace frit
