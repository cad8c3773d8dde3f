#include <algorithm>

#include "frit/core/text.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {

Graph freeze(const Graph& graph, const std::vector<std::string>& patterns) {
  const auto matches = [](const std::string& pattern, const Node& node) {
    return node.kind == NodeKind::variable && node.trainable && matches_pattern(pattern, node.name);
  };
  for (const std::string& pattern : patterns) {
    const std::vector<Node>& nodes = graph.nodes();
    if (std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) { return matches(pattern, node); })) continue;
    std::vector<std::string> names;
    for (const Node* node : graph.all(NodeKind::variable)) {
      if (node->trainable) names.push_back(node->name);
    }
    fail(ErrorKind::argument, "no parameter's name matches \"", printable(pattern), '"', did_you_mean(pattern, names));
  }
  Rewriter rewriter(graph);
  for (Node node : graph.nodes()) {
    node.trainable = node.trainable && std::none_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, node); });
    rewriter.copy(node);
  }
  Graph result = rewriter.finish();
  if (const Graph::Remake& remake = graph.remake()) {
    result.remake_by([=](const auto& inputs) { return freeze(remake(inputs), patterns); });
  }
  return result;
}

}  // namespace frit::graph
