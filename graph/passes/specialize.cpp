#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {

Graph specialize(const Graph& graph, const std::map<std::string, TensorType>& inputs) {
  for (const auto& [name, type] : inputs) {
    if (graph.find(NodeKind::input, name) != nullptr) continue;
    std::string known;
    for (const Node* node : graph.all(NodeKind::input)) known += " " + node->name;
    fail(ErrorKind::argument, "the graph has no input \"", name, "\"; it has:", known);
  }
  if (graph.remake()) return graph.remake()(inputs);
  const Graph live = remove_dead_code(graph);
  const std::vector<int> uses = use_counts(live);
  Rewriter rewriter(live);
  for (const Node& node : live.nodes()) {
    if (node.kind == NodeKind::operation && node.op->at_known_sizes) {
      const Values outputs = node.op->at_known_sizes(rewriter.target(), rewriter(node.inputs), node.attributes);
      for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
      continue;
    }
    if (node.kind != NodeKind::input) {
      rewriter.copy(node);
      continue;
    }
    const auto given = inputs.find(node.name);
    if (given == inputs.end() && uses[static_cast<std::size_t>(node.outputs[0])] == 0)
      continue;  // a loss's target, where none is asked for
    const TensorType& declared = live.type(node.outputs[0]);
    require(given != inputs.end(), "input \"", node.name, "\" (", declared, ") was not given");
    require(given->second.dtype == declared.dtype, "input \"", node.name, "\": expected ", declared.dtype, ", got ", given->second.dtype);
    rewriter.map(node.outputs[0], rewriter.target().input(node.name, given->second.shape, declared.dtype));
  }
  return rewriter.finish();
}

}  // namespace frit::graph
