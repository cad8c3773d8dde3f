#include <algorithm>
#include <optional>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

struct AbsorbingCall {
  std::vector<int> inputs;
  ops::Attributes attributes;
};

/// Whether the node's operator makes of the call what it makes of the node's inputs.
bool fits(const Graph& graph, const Node& node, const AbsorbingCall& call) try {
  return node.op->infer_types(graph.types(call.inputs), call.attributes) == graph.types(node.outputs);
} catch (const Error& error) {
  if (error.kind() != ErrorKind::argument) throw;
  return false;
}

/// Takes over what the first input's producer does, if nothing else reads that.
void absorb_producer(const Graph& graph, const Node& node, const std::vector<int>& uses, AbsorbingCall& call) {
  if (!node.op->absorb || node.inputs.empty()) return;
  const Node& producer = graph.producer(node.inputs[0]);
  if (producer.kind != NodeKind::operation || producer.outputs.size() != 1 || uses[static_cast<std::size_t>(node.inputs[0])] != 1) return;
  const std::optional<ops::Attributes> attributes = node.op->absorb(*producer.op, producer.attributes, node.attributes);
  if (!attributes) return;
  AbsorbingCall absorbing{call.inputs, *attributes};
  absorbing.inputs[0] = producer.inputs[0];
  if (fits(graph, node, absorbing)) call = std::move(absorbing);
}

/// Reads what casts from and to halves read, where the operator can do without them.
void drop_casts(const Graph& graph, const Node& node, AbsorbingCall& call) {
  const std::vector<int>& any = node.op->any_precision;
  for (std::size_t input = 0; input < node.inputs.size(); ++input) {
    const auto declared = static_cast<int>(std::min(input, node.op->inputs.size() - 1));  // the last one may repeat
    if (std::find(any.begin(), any.end(), declared) == any.end()) continue;
    const Node& producer = graph.producer(node.inputs[input]);
    if (producer.kind != NodeKind::operation || !producer.op->conversion) continue;
    const DType from = graph.type(producer.inputs[0]).dtype, to = graph.type(node.inputs[input]).dtype;
    if (!(is_half(from) && to == DType::f32) && !(from == DType::f32 && is_half(to))) continue;
    AbsorbingCall uncast = call;
    uncast.inputs[input] = producer.inputs[0];
    if (fits(graph, node, uncast)) call = std::move(uncast);
  }
}

}  // namespace

Graph absorb(const Graph& graph) {
  const std::vector<int> uses = use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation) {
      rewriter.copy(node);
      continue;
    }
    AbsorbingCall call{node.inputs, node.attributes};
    absorb_producer(graph, node, uses, call);
    drop_casts(graph, node, call);
    const Values outputs = rewriter.target().emit(*node.op, rewriter(call.inputs), call.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
