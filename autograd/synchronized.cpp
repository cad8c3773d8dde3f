#include "frit/autograd/synchronized.h"

#include <algorithm>

#include "frit/core/text.h"
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

void require_same_calls(const Graph& graph, Communicator& communicator) {
  std::string own;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) own += concat(node->name, ": ", graph.type(node->outputs[0]), '\n');
  for (const graph::Node* node : graph.all(graph::NodeKind::operation)) {
    if (node->op->collective) own += node->op->name + '\n';
  }
  const std::vector<std::string> all = communicator.all_gather(own);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto apart = std::mismatch(all[r].begin(), all[r].end(), all[0].begin(), all[0].end());
    const auto line = [](const std::string& text, std::string::const_iterator place) {
      const auto number = static_cast<std::size_t>(place - text.begin());
      const std::size_t begin = number == 0 ? 0 : text.rfind('\n', number - 1) + 1;
      return text.substr(begin, text.find('\n', begin) - begin);
    };
    fail(ErrorKind::argument, "a step with synchronized batch norms: process ", r, " has \"", line(all[r], apart.first),
         "\" where process 0 has \"", line(all[0], apart.second), '"');
  }
}

}  // namespace frit
