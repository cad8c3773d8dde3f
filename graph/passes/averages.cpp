#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// The node's result from what its producer in the new graph reads, if nothing else reads what that gives; "none" if it cannot be.
Value averaged(const Graph& graph, const Node& node, const std::vector<int>& uses, Rewriter& rewriter) {
  if (node.kind != NodeKind::operation || !node.op->averaging || uses[static_cast<std::size_t>(node.inputs[0])] != 1) return {};
  Graph& target = rewriter.target();
  const Node producer = target.producer(rewriter(node.inputs[0]).id());  // may be one that took over averages already
  if (producer.kind != NodeKind::operation || !producer.op->average) return {};
  const auto averaging = node.op->averaging(graph.type(node.inputs[0]).shape, node.attributes);
  if (!averaging) return {};
  Values inputs;
  for (const int id : producer.inputs) inputs.push_back(id < 0 ? Value() : target.value(id));
  return producer.op->average(inputs, producer.attributes, *averaging);
}

}  // namespace

Graph average_early(const Graph& graph) {
  const std::vector<int> uses = use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const Value early = averaged(graph, node, uses, rewriter);
    early ? rewriter.map(node.outputs[0], early) : rewriter.copy(node);
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
