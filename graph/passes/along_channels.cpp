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

/// Whether output 0 has as many axes as input 0, whose last one may be moved likewise.
bool keeps_rank(const Graph& graph, const Node& call) {
  if (call.kind != NodeKind::operation || call.inputs.empty()) return false;
  return graph.type(call.inputs[0]).shape.rank() == graph.type(call.outputs[0]).shape.rank();
}

/// None if no operator has a rule for the call.
Value along_channels(const Node& call, std::span<const Value> inputs) {
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
    const Node* const call = moved(node) ? &graph.producer(node.inputs[0]) : nullptr;
    if (call != nullptr && keeps_rank(graph, *call)) {
      Values inputs = rewriter(call->inputs);
      inputs[0] = rewriter.target().emit(*node.op, std::span(inputs).first(1), node.attributes)[0];
      result = along_channels(*call, inputs);
    }
    result ? rewriter.map(node.outputs[0], result) : rewriter.copy(node);
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
