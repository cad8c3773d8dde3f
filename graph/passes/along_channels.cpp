#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/registry.h"

namespace frit::graph {
namespace {

/// Whether axis i of the result is the input's axis i - 1, and axis 1 its last.
bool moves_last_axis_to_channels(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::operation || !node.op->permutation) return false;
  const Dims axes = node.op->permutation(node.attributes);
  const int rank = graph.type(node.inputs[0]).shape.rank();
  bool moves = (rank == 4 || rank == 5) && axes[0] == 0 && axes[1] == rank - 1;
  for (int axis = 2; moves && axis < rank; ++axis) moves = axes[axis] == axis - 1;
  return moves;
}

/// None if no operator has a rule for the call.
Value along_channels(const Node& call, std::span<const Value> inputs) {
  if (call.kind != NodeKind::operation) return {};
  for (const ops::Operator* op : ops::registry().all()) {
    const Value result = op->along_channels ? op->along_channels(*call.op, inputs) : Value();
    if (result) return result;
  }
  return {};
}

}  // namespace

Graph compute_along_channels(const Graph& graph) {
  const std::vector<int> uses = use_counts(graph);
  std::vector<bool> is_followed(uses.size(), false);  // by elementwise operations
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation || !node.op->elementwise) continue;
    for (const int id : node.inputs) is_followed[static_cast<std::size_t>(id)] = true;
  }
  const auto once = [&](int id) { return uses[static_cast<std::size_t>(id)] == 1; };
  const auto moved = [&](const Node& node) {
    return moves_last_axis_to_channels(graph, node) && once(node.inputs[0]) && once(node.outputs[0]) &&
           is_followed[static_cast<std::size_t>(node.outputs[0])];
  };
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    Value result;
    if (moved(node)) {
      const Node& call = graph.producer(node.inputs[0]);
      Values inputs = rewriter(call.inputs);
      if (!inputs.empty()) inputs[0] = rewriter.target().emit(*node.op, std::span(inputs).first(1), node.attributes)[0];
      result = along_channels(call, inputs);
    }
    result ? rewriter.map(node.outputs[0], result) : rewriter.copy(node);
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
