#include <optional>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// The attributes with which `node` does what its first input's producer does, if nothing else reads that.
std::optional<ops::Attributes> absorbed(const Graph& graph, const Node& node, const std::vector<int>& uses) {
  if (node.kind != NodeKind::operation || !node.op->absorb || node.inputs.empty()) return std::nullopt;
  const Node& producer = graph.producer(node.inputs[0]);
  if (producer.kind != NodeKind::operation || producer.outputs.size() != 1 || uses[static_cast<std::size_t>(node.inputs[0])] != 1) {
    return std::nullopt;
  }
  return node.op->absorb(*producer.op, producer.attributes, node.attributes);
}

}  // namespace

Graph absorb(const Graph& graph) {
  const std::vector<int> uses = use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const std::optional<ops::Attributes> attributes = absorbed(graph, node, uses);
    if (!attributes) {
      rewriter.copy(node);
      continue;
    }
    Values inputs = rewriter(node.inputs);
    inputs[0] = rewriter(graph.producer(node.inputs[0]).inputs[0]);
    const Values outputs = rewriter.target().emit(*node.op, inputs, *attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      FRIT_CHECK(outputs[i].type() == graph.type(node.outputs[i]));
      rewriter.map(node.outputs[i], outputs[i]);
    }
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
