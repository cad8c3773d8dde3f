#include <algorithm>

#include "frit/graph/index.h"
#include "frit/graph/passes/groups.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/reduced_program.h"

// Operations that hand elements to each other, or read the same ones, become groups, each of which one operator computes. A group's results
// have one shape, so that nothing is computed for more elements than before; it is grown as long as that operator takes its program and
// the rest of the graph can still run before or after it. On a GPU, reductions of its results are then computed with it, if an operator
// does that: a result that nothing else reads is never written.

namespace frit::graph {
namespace {

class Joiner {
 public:
  /// `reducing`: compute groups with reductions of their results.
  Joiner(const Graph& graph, const ops::Operator& op, std::vector<const ops::Operator*> reducing)
      : graph_(graph),
        op_(op),
        reducing_(std::move(reducing)),
        groups_(graph, op),
        done_(graph.nodes().size(), false),
        reduced_(graph.nodes().size(), false),
        rewriter_(graph) {}

  Graph run(bool rematerializes) {
    for (int n = 0; n < size(); ++n) {
      if (!groups_.joinable(n)) continue;
      for (const int id : groups_.node(n).inputs) groups_.try_join(graph_.producer_index(id), n);
    }
    for (int n = 0; n < size(); ++n) join_readers(n);
    if (rematerializes) rematerialize(groups_);
    for (int n = 0; n < size(); ++n) {
      if (groups_.of(n).members.back() == n) emit(n);
    }
    return rewriter_.finish();
  }

 private:
  int size() const { return static_cast<int>(graph_.nodes().size()); }

  /// Operations that read the same elements of one tensor read them together.
  void join_readers(int n) {
    for (const int id : groups_.node(n).outputs) {
      const std::vector<int> readers = groups_.readers_of(id);
      for (std::size_t i = 1; i < readers.size(); ++i) {
        const bool fits = groups_.joinable(readers[i]) && graph_.type(id).shape == groups_.shape(readers[i]);
        if (fits) groups_.try_join(readers[i - 1], readers[i]);
      }
    }
  }

  /// Appends the node's group to the new graph, after all that it waits for.
  void emit(int n) {
    const std::vector<int>& members = groups_.of(n).members;
    if (done_[static_cast<std::size_t>(members[0])]) return;
    done_[static_cast<std::size_t>(members[0])] = true;
    for (const int member : members) {
      for (const int first : groups_.before(member)) {
        if (!groups_.same(first, member)) emit(first);
      }
    }
    if (reduced_[static_cast<std::size_t>(n)]) return;
    const bool alone = members.size() == 1 && groups_.of(n).recomputed.empty();
    if (alone && (reducing_.empty() || !groups_.joinable(n))) return rewriter_.copy(groups_.node(n));
    const Groups::Joined joined = groups_.program_of(n);
    if (joined.outputs.empty() && !alone) return;  // all that read it compute it again
    const auto computes = [&](const ops::Operator* reducing) { return emit_with_reductions(joined, *reducing); };
    if (std::any_of(reducing_.begin(), reducing_.end(), computes)) return;
    if (alone) return rewriter_.copy(groups_.node(n));
    const Values outputs = rewriter_.target().emit(op_, rewriter_(joined.inputs), *joined.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(joined.outputs[i], outputs[i]);
  }

  /// A group together with reductions of one kind, if there are any that the operator takes. These come then as early as the group does.
  bool emit_with_reductions(const Groups::Joined& joined, const ops::Operator& reducing) {
    const std::vector<TensorType> types = graph_.types(joined.inputs);
    ops::ReducedProgram call;
    std::vector<int> nodes, read;
    for (const auto& [reader, id] : reductions_of(joined)) {
      const Node& node = groups_.node(reader);
      ops::ReducedProgram one{joined.program, static_cast<std::int64_t>(joined.outputs.size()), {0}, {node.op, node.attributes}};
      const bool fits = nodes.empty() ? reducing.join_reduced(one, types).has_value() : one.reduction.text() == call.reduction.text();
      if (!fits) continue;
      if (nodes.empty()) call.reduction = one.reduction;
      nodes.push_back(reader);
      read.push_back(id);
    }
    if (nodes.empty()) return false;
    std::vector<int> outputs = joined.outputs;
    const auto first_reduced = std::stable_partition(outputs.begin(), outputs.end(), [&](int id) { return groups_.leaves(id, nodes); });
    call.stored = first_reduced - outputs.begin();
    call.program = joined.program;
    call.program.outputs.clear();
    const auto place_in = [](const std::vector<int>& ids, int id) { return std::find(ids.begin(), ids.end(), id) - ids.begin(); };
    for (const int id : outputs) {
      call.program.outputs.push_back(joined.program.outputs[static_cast<std::size_t>(place_in(joined.outputs, id))]);
    }
    for (const int id : read) call.reduced.push_back(place_in(outputs, id));
    std::optional<ops::Attributes> attributes = reducing.join_reduced(call, types);
    if (!attributes) return false;
    if (const auto next = nodes.size() == 1 ? taking_over(nodes[0], call.reduction, graph_.type(read[0])) : std::nullopt) {
      call.reduction = next->second;
      if (const auto of_both = reducing.join_reduced(call, types)) {
        attributes = of_both;
        reduced_[index(nodes[0])] = true;
        nodes[0] = next->first;
      }
    }
    const Values results = rewriter_.target().emit(reducing, rewriter_(joined.inputs), *attributes);
    const auto stored = static_cast<std::size_t>(call.stored);
    for (std::size_t i = 0; i < stored; ++i) rewriter_.map(outputs[i], results[i]);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      rewriter_.map(groups_.node(nodes[i]).outputs[0], results[stored + i]);
      reduced_[index(nodes[i])] = true;
    }
    return true;
  }

  /// What may be reductions of the group's results, each with what it reads. Those that leave most come first: of the others, one may be
  /// of what these give.
  std::vector<std::pair<int, int>> reductions_of(const Groups::Joined& joined) const {
    std::vector<std::pair<int, int>> found;
    for (const int id : joined.outputs) {
      for (const int reader : groups_.readers_of(id)) {
        const Node& node = groups_.node(reader);
        if (node.kind != NodeKind::operation || node.op->elementwise || node.inputs.size() != 1 || node.outputs.size() != 1) continue;
        found.emplace_back(reader, id);
      }
    }
    const auto left = [&](const auto& reduction) { return graph_.type(groups_.node(reduction.first).outputs[0]).elements(); };
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return left(a) > left(b); });
    return found;
  }

  /// What alone reads a reduction's result and takes that over, with the reduction that it then is of the value, of this type.
  std::optional<std::pair<int, ops::OperatorCall>> taking_over(int reduced, const ops::OperatorCall& reduction,
                                                               const TensorType& type) const {
    const int result = groups_.node(reduced).outputs[0];
    const std::vector<int> readers = groups_.readers_of(result);
    if (readers.size() != 1 || groups_.leaves(result, readers)) return std::nullopt;
    const Node& node = groups_.node(readers[0]);
    if (node.kind != NodeKind::operation || !node.op->absorb || node.inputs.size() != 1 || node.outputs.size() != 1) return std::nullopt;
    const std::optional<ops::Attributes> attributes = node.op->absorb(reduction, type, 0, node.attributes);
    if (!attributes || node.op->infer_types({&type, 1}, *attributes) != graph_.types(node.outputs)) return std::nullopt;
    return std::pair(readers[0], ops::OperatorCall{node.op, *attributes});
  }

  const Graph& graph_;
  const ops::Operator& op_;
  std::vector<const ops::Operator*> reducing_;
  Groups groups_;
  std::vector<bool> done_;     // by the group's first member
  std::vector<bool> reduced_;  // by node: a reduction that is computed with a group
  Rewriter rewriter_;
};

}  // namespace

Graph join_elementwise(const Graph& graph, DeviceKind device) {
  const bool on_gpu = device != DeviceKind::cpu;  // a CPU reads a value faster than it computes an activation
  std::vector<const ops::Operator*> reducing;
  for (const ops::Operator* op : ops::registry().all()) {
    if (op->join_reduced && on_gpu) reducing.push_back(op);
  }
  Graph result = graph;
  for (const ops::Operator* op : ops::registry().all()) {
    if (op->join) result = remove_dead_code(Joiner(result, *op, reducing).run(/*rematerializes=*/on_gpu));
  }
  return result;
}

}  // namespace frit::graph
