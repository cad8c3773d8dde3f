#include <optional>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// The value that is the node's result already.
std::optional<int> given(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::operation || !node.op->given || node.inputs.empty()) return std::nullopt;
  const int read = node.inputs[0];
  const Node& producer = graph.producer(read);
  if (producer.kind != NodeKind::operation) return std::nullopt;
  for (std::size_t i = 0; i < producer.outputs.size(); ++i) {
    if (producer.outputs[i] != read) continue;
    const std::optional<int> output = node.op->given(*producer.op, static_cast<int>(i), graph.type(read).shape, node.attributes);
    if (output) return producer.outputs[static_cast<std::size_t>(*output)];
  }
  return std::nullopt;
}

}  // namespace

Graph take_given_results(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (const std::optional<int> value = given(graph, node)) {
      FRIT_CHECK(graph.type(*value) == graph.type(node.outputs[0]));
      rewriter.map(node.outputs[0], rewriter(*value));
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

}  // namespace frit::graph
