#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// The inputs with which the operation that gives input 0, and that nothing else reads, gives the node's result; none if it cannot.
Values folded_inputs(const Rewriter& rewriter, const Node& node, const Node& producer, int uses) {
  if (!node.op->channel_affine_at_inference || uses != 1) return {};
  if (producer.kind != NodeKind::operation || !producer.op->fold_channel_affine) return {};
  const ops::ChannelAffine affine = node.op->channel_affine_at_inference(rewriter(node.inputs), node.attributes);
  return producer.op->fold_channel_affine(rewriter(producer.inputs), producer.attributes, affine);
}

}  // namespace

Graph for_inference(const Graph& graph) {
  const std::vector<int> uses = use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation || !node.op->at_inference) {
      rewriter.copy(node);
      continue;
    }
    const Node& producer = graph.producer(node.inputs[0]);
    const Values folded = folded_inputs(rewriter, node, producer, uses[static_cast<std::size_t>(node.inputs[0])]);
    const Values outputs = folded.empty() ? node.op->at_inference(rewriter.target(), rewriter(node.inputs), node.attributes)
                                          : rewriter.target().emit(*producer.op, folded, producer.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
  }
  Graph result = remove_dead_code(rewriter.finish());
  if (const Graph::Remake& remake = graph.remake())
    result.remake_by([remake](const auto& inputs) { return for_inference(remake(inputs)); });
  return result;
}

}  // namespace frit::graph
