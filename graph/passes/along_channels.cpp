#include <optional>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/operator.h"

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

bool is_unary_elementwise(const Node& node) {
  return node.kind == NodeKind::operation && node.op->elementwise && node.inputs.size() == 1 && node.outputs.size() == 1;
}

class AlongChannels {
 public:
  explicit AlongChannels(const Graph& graph) : graph_(graph), uses_(use_counts(graph)), is_followed_(uses_.size(), false), rewriter_(graph) {
    for (const Node& node : graph.nodes()) {
      if (node.kind != NodeKind::operation || !node.op->elementwise) continue;
      for (const int id : node.inputs) is_followed_[static_cast<std::size_t>(id)] = true;
    }
  }

  /// None if there is nothing to do.
  std::optional<Graph> run() {
    bool changed = false;
    for (const Node& node : graph_.nodes()) {
      const Value result = moves_last_axis_to_channels(graph_, node) ? moved_before(node) : Value();
      result ? rewriter_.map(node.outputs[0], result) : rewriter_.copy(node);
      changed = changed || result;
    }
    return changed ? std::optional(remove_dead_code(rewriter_.finish())) : std::nullopt;
  }

 private:
  bool once(int id) const { return uses_[static_cast<std::size_t>(id)] == 1; }

  /// The permutation's result where it comes first: before elementwise operations and the one that these follow.
  Value moved_before(const Node& permutation) {
    if (!once(permutation.inputs[0])) return {};
    std::vector<const Node*> after;
    const Node* call = &graph_.producer(permutation.inputs[0]);
    for (; is_unary_elementwise(*call) && once(call->inputs[0]); call = &graph_.producer(call->inputs[0])) after.push_back(call);
    const int last = permutation.outputs[0];
    const bool is_followed = !after.empty() || (once(last) && is_followed_[static_cast<std::size_t>(last)]);
    if (!is_followed || !keeps_rank(graph_, *call)) return {};
    Values inputs = rewriter_(call->inputs);
    Graph& target = rewriter_.target();
    inputs[0] = target.emit(*permutation.op, std::span(inputs).first(1), permutation.attributes)[0];
    Value result = along_channels(*call, inputs);
    for (auto node = after.rbegin(); result && node != after.rend(); ++node) {
      result = target.emit(*(*node)->op, {{result}}, (*node)->attributes)[0];
    }
    return result;
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<bool> is_followed_;
  Rewriter rewriter_;
};

}  // namespace

Graph compute_along_channels(const Graph& graph) {
  Graph result = graph;
  // A permutation that has been moved may be moved again.
  while (std::optional<Graph> next = AlongChannels(result).run()) result = std::move(*next);
  return result;
}

}  // namespace frit::graph
