#include <algorithm>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// By value: how often operations that it could be computed with read it.
std::vector<int> reads_to_join(const Graph& graph, bool for_chains) {
  std::vector<int> result(static_cast<std::size_t>(graph.value_count()), 0);
  const auto count = [&](int id) { ++result[static_cast<std::size_t>(id)]; };
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation) continue;
    if (node.op->elementwise && node.op->mutates.empty()) {
      for (const int id : node.inputs) {
        if (graph.type(id).shape == graph.type(node.outputs[0]).shape) count(id);
      }
    }
    if (!for_chains) continue;
    for (const ops::StagedInput& staged : node.op->staged_inputs) {
      const auto input = static_cast<std::size_t>(staged.input);
      if (input < node.inputs.size()) count(node.inputs[input]);
    }
  }
  return result;
}

/// Whether a CPU's kernel does, in a chain.
bool takes_what_follows(const Graph& graph, const Node& node) {
  const TensorType& result = graph.type(node.outputs[0]);
  return node.op->cpu.staged && result.shape.rank() >= 4 && !is_half(result.dtype);
}

}  // namespace

Graph spell_pointwise_results(const Graph& graph, bool for_chains) {
  const std::vector<int> reads = reads_to_join(graph, for_chains), uses = use_counts(graph);
  const auto joins = [&](int id) { return reads[static_cast<std::size_t>(id)] > 0; };
  // A further result costs the operation no reading: only if nothing else reads it, is it not computed at all.
  const auto alone = [&](int id) { return joins(id) && reads[static_cast<std::size_t>(id)] == uses[static_cast<std::size_t>(id)]; };
  const auto gains = [&](const Node& node, std::size_t k) {
    if (k > 0) return alone(node.outputs[k]);
    // One number of a whole image, a loss, is reduced where others read that image.
    if (graph.type(node.outputs[0]).shape.rank() > 0) return joins(node.outputs[0]);
    const bool image_is_read = std::any_of(node.inputs.begin(), node.inputs.end(), joins);
    return for_chains && (image_is_read || std::any_of(node.outputs.begin() + 1, node.outputs.end(), alone));
  };
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    bool any = false;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) any = any || gains(node, k);
    if (node.kind != NodeKind::operation || !node.op->pointwise || !any) continue;
    if (!for_chains && takes_what_follows(graph, node)) continue;
    const Values spelled = node.op->pointwise(rewriter(node.inputs), rewriter(node.outputs), node.attributes);
    for (std::size_t k = 0; k < spelled.size(); ++k) {
      if (!spelled[k] || !gains(node, k)) continue;
      FRIT_CHECK(spelled[k].type() == graph.type(node.outputs[k]));
      rewriter.map(node.outputs[k], spelled[k]);
    }
  }
  return share_common_subexpressions(remove_dead_code(rewriter.finish()));  // two results may be spelled with the same parts
}

}  // namespace frit::graph
