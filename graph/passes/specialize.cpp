#include <optional>

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
  const Graph live = remove_dead_code(graph);
  const std::vector<int> uses = use_counts(live);
  std::map<std::string, TensorType> types;  // of all inputs; what is not given is read by nothing, as a loss's target where none is asked for
  for (const Node* node : graph.all(NodeKind::input)) {
    const TensorType& declared = graph.type(node->outputs[0]);
    const Node* const read = live.find(NodeKind::input, node->name);
    const auto given = inputs.find(node->name);
    const bool needed = read != nullptr && uses[static_cast<std::size_t>(read->outputs[0])] > 0;
    require(given != inputs.end() || !needed, "input \"", node->name, "\" (", declared, ") was not given");
    types[node->name] = given != inputs.end() ? given->second : declared;
    require(types[node->name].dtype == declared.dtype, "input \"", node->name, "\": expected ", declared.dtype, ", got ",
            types[node->name].dtype);
  }
  std::optional<Graph> remade;
  if (graph.remake()) remade = remove_dead_code(graph.remake()(types));
  const Graph& source = remade ? *remade : live;
  Rewriter rewriter(source);
  for (const Node& node : source.nodes()) {
    if (node.kind == NodeKind::operation && node.op->at_known_sizes) {
      const Values outputs = node.op->at_known_sizes(rewriter.target(), rewriter(node.inputs), node.attributes);
      if (outputs.size() != node.outputs.size()) fail(ErrorKind::bug, node.op->name, ": at_known_sizes gives ", outputs.size(), " values");
      for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
      continue;
    }
    if (node.kind != NodeKind::input) {
      rewriter.copy(node);
      continue;
    }
    if (inputs.contains(node.name)) {
      rewriter.map(node.outputs[0], rewriter.target().input(node.name, types.at(node.name).shape, types.at(node.name).dtype));
    }
  }
  return rewriter.finish();
}

}  // namespace frit::graph
