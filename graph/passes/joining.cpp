#include "frit/graph/passes/groups.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

// Operations that hand elements to each other, or read the same ones, become groups, each of which one operator computes. A group's results
// have one shape, so that nothing is computed for more elements than before; it is grown as long as that operator takes its program and
// the rest of the graph can still run before or after it.

namespace frit::graph {
namespace {

class Joiner {
 public:
  Joiner(const Graph& graph, const ops::Operator& op)
      : graph_(graph), op_(op), groups_(graph, op), done_(graph.nodes().size(), false), rewriter_(graph) {}

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
    if (members.size() == 1 && groups_.of(n).recomputed.empty()) return rewriter_.copy(groups_.node(n));
    const Groups::Joined joined = groups_.program_of(n);
    if (joined.outputs.empty()) return;  // all that read it compute it again
    const Values outputs = rewriter_.target().emit(op_, rewriter_(joined.inputs), *joined.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(joined.outputs[i], outputs[i]);
  }

  const Graph& graph_;
  const ops::Operator& op_;
  Groups groups_;
  std::vector<bool> done_;  // by the group's first member
  Rewriter rewriter_;
};

}  // namespace

Graph join_elementwise(const Graph& graph, bool rematerializes) {
  Graph result = graph;
  for (const ops::Operator* op : ops::registry().all()) {
    if (op->join) result = remove_dead_code(Joiner(result, *op).run(rematerializes));
  }
  return result;
}

Graph join_elementwise(const Graph& graph) { return join_elementwise(graph, true); }

}  // namespace frit::graph
