#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// The node's result from what its producer reads, if nothing else reads what that gives; "none" if it cannot be, or gains nothing.
Value averaged(const Graph& graph, const Node& node, const std::vector<int>& uses, std::int64_t least_bytes, Rewriter& rewriter) {
  if (node.kind != NodeKind::operation || !node.op->averaging || node.outputs.size() != 1) return {};
  const int read = node.inputs[0];
  const Node& producer = graph.producer(read);
  const bool alone = producer.kind == NodeKind::operation && producer.outputs.size() == 1 && uses[static_cast<std::size_t>(read)] == 1;
  if (!alone || !producer.op->average || graph.type(read).bytes() < least_bytes) return {};
  const auto averaging = node.op->averaging(graph.type(read).shape, node.attributes);
  return averaging ? producer.op->average(rewriter(producer.inputs), producer.attributes, *averaging) : Value();
}

}  // namespace

Graph average_early(const Graph& given, std::int64_t least_bytes) {
  Graph graph = given;
  for (bool found = true; found;) {  // what takes over averages may read those of another
    const std::vector<int> uses = use_counts(graph);
    Rewriter rewriter(graph);
    found = false;
    for (const Node& node : graph.nodes()) {
      const Value early = averaged(graph, node, uses, least_bytes, rewriter);
      early ? rewriter.map(node.outputs[0], early) : rewriter.copy(node);
      found = found || early;
    }
    if (found) graph = remove_dead_code(rewriter.finish());
  }
  return graph;
}

}  // namespace frit::graph
