#include <algorithm>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/run.h"

namespace frit::graph {
namespace {

/// A folded result may not make the program bigger than this (an expanded zero stays an operation).
constexpr std::int64_t largest_folded_bytes = 64 * 1024;

bool foldable(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::operation || node.inputs.empty() || !node.op->mutates.empty() || node.op->collective) return false;
  const auto constant = [&](int id) { return graph.producer(id).kind == NodeKind::constant; };
  const auto small = [&](int id) { return graph.type(id).bytes() <= largest_folded_bytes; };
  return std::all_of(node.inputs.begin(), node.inputs.end(), constant) && std::all_of(node.outputs.begin(), node.outputs.end(), small);
}

}  // namespace

Graph fold_constants(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    if (node.kind != NodeKind::operation) continue;
    const Graph& target = rewriter.target();
    const Node copied = target.nodes().back();
    if (!foldable(target, copied)) continue;
    std::vector<Tensor> inputs;
    for (const int id : copied.inputs) inputs.push_back(target.producer(id).constant);
    const std::vector<Tensor> results = ops::run(*copied.op, inputs, copied.attributes);
    for (std::size_t i = 0; i < results.size(); ++i) rewriter.map(node.outputs[i], rewriter.target().constant(results[i]));
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
