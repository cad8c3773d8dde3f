#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/elementwise_program.h"

// Operations that hand elements to each other, or read the same ones, become groups, each of which one operator computes. A group's results
// have one shape, so that nothing is computed for more elements than before; it is grown as long as that operator takes its program and
// the rest of the graph can still run before or after it.

namespace frit::graph {
namespace {

using Group = std::vector<int>;  // node indices, ascending

class Joiner {
 public:
  Joiner(const Graph& graph, const ops::Operator& op)
      : graph_(graph),
        op_(op),
        readers_(graph.nodes().size()),
        needs_(graph.nodes().size()),
        reached_by_(graph.nodes().size(), 0),
        is_output_(index(graph.value_count()), false),
        rewriter_(graph) {
    for (const Output& output : graph.outputs()) is_output_[index(output.value)] = true;
    for (int n = 0; n < size(); ++n) {
      groups_.push_back({n});
      group_of_.push_back(n);
      order_.push_back(n);
      for (const int id : node(n).inputs) put_after(graph.producer_index(id), n);
    }
    for (int n = 0; n < size(); ++n) {
      for (const int id : updated(n)) {
        for (const int reader : readers_of(id)) {
          if (reader != n) put_after(reader, n);  // not a reader, but it must wait for one
        }
      }
    }
  }

  Graph run() {
    for (int n = 0; n < size(); ++n) {
      if (!joinable(n)) continue;
      for (const int id : node(n).inputs) try_join(graph_.producer_index(id), n);
    }
    for (int n = 0; n < size(); ++n) join_readers(n);
    done_.assign(groups_.size(), false);
    for (int n = 0; n < size(); ++n) {
      if (group(n).back() == n) emit(n);
    }
    return rewriter_.finish();
  }

 private:
  static std::size_t index(int n) { return static_cast<std::size_t>(n); }
  int size() const { return static_cast<int>(graph_.nodes().size()); }
  const Node& node(int n) const { return graph_.nodes()[index(n)]; }
  const Group& group(int n) const { return groups_[index(group_of_[index(n)])]; }
  const Shape& shape(int n) const { return graph_.type(node(n).outputs[0]).shape; }

  void put_after(int first, int second) {
    readers_[index(first)].push_back(second);
    needs_[index(second)].push_back(first);
  }

  bool joinable(int n) const { return node(n).kind == NodeKind::operation && node(n).op->elementwise && node(n).op->mutates.empty(); }

  std::vector<int> updated(int n) const {
    std::vector<int> ids;
    if (node(n).kind != NodeKind::operation) return ids;
    for (const int input : node(n).op->mutates) {
      if (index(input) < node(n).inputs.size()) ids.push_back(node(n).inputs[index(input)]);
    }
    return ids;
  }

  std::vector<int> readers_of(int id) const {
    std::vector<int> result;
    for (const int reader : readers_[index(graph_.producer_index(id))]) {
      const std::vector<int>& inputs = node(reader).inputs;
      if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) result.push_back(reader);
    }
    return result;
  }

  /// Operations that read the same elements of one tensor read them together.
  void join_readers(int n) {
    for (const int id : node(n).outputs) {
      const std::vector<int> readers = readers_of(id);
      for (std::size_t i = 1; i < readers.size(); ++i) {
        if (graph_.type(id).shape == shape_or_none(readers[i])) try_join(readers[i - 1], readers[i]);
      }
    }
  }

  Shape shape_or_none(int n) const { return joinable(n) ? shape(n) : Shape{-1}; }

  void try_join(int a, int b) {
    if (!joinable(a) || !joinable(b) || group_of_[index(a)] == group_of_[index(b)] || !(shape(a) == shape(b))) return;
    Group both;
    std::merge(group(a).begin(), group(a).end(), group(b).begin(), group(b).end(), std::back_inserter(both));
    if (!program_of(both).attributes) return;
    int first = group_of_[index(a)], second = group_of_[index(b)];
    if (order_[index(first)] > order_[index(second)]) std::swap(first, second);
    const std::optional<std::vector<int>> after = between(first, second, readers_);
    if (!after) return;  // something outside of both needs the one and is needed by the other
    reorder(*between(second, first, needs_), first, second, *after);
    for (const int member : both) group_of_[index(member)] = first;
    groups_[index(second)].clear();
    groups_[index(first)] = std::move(both);
  }

  /// The groups to which `edges` lead from the one group, in the order between it and the other; none if they lead on to the other.
  std::optional<std::vector<int>> between(int from, int to, const std::vector<std::vector<int>>& edges) {
    const auto [low, high] = std::minmax(order_[index(from)], order_[index(to)]);
    std::vector<int> found = {from};
    ++searches_;
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (const int member : groups_[index(found[i])]) {
        for (const int next : edges[index(member)]) {
          const int reached = group_of_[index(next)], place = order_[index(reached)];
          if (reached == to && i > 0) return std::nullopt;
          if (place <= low || place >= high || std::exchange(reached_by_[index(reached)], searches_) == searches_) continue;
          found.push_back(reached);
        }
      }
    }
    found.erase(found.begin());
    return found;
  }

  /// Sets the groups down in an order in which they can run once the two are one, which is `first`, in the places that they have. (Pearce
  /// and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2007.)
  void reorder(std::vector<int> before, int first, int second, std::vector<int> after) {
    const auto earlier = [&](int a, int b) { return order_[index(a)] < order_[index(b)]; };
    std::sort(before.begin(), before.end(), earlier);
    std::sort(after.begin(), after.end(), earlier);
    std::vector<int> places = {order_[index(first)], order_[index(second)]};
    for (const std::vector<int>* groups : {&before, &after}) {
      for (const int group : *groups) places.push_back(order_[index(group)]);
    }
    std::sort(places.begin(), places.end());
    before.push_back(first);
    for (std::size_t i = 0; i < before.size(); ++i) order_[index(before[i])] = places[i];
    for (std::size_t i = 0; i < after.size(); ++i) order_[index(after[i])] = places[before.size() + 1 + i];
  }

  static bool contains(const Group& members, int n) { return std::binary_search(members.begin(), members.end(), n); }

  struct Joined {
    std::vector<int> inputs, outputs;  // value ids
    std::optional<ops::Attributes> attributes;
  };

  Joined program_of(const Group& members) const {
    Joined joined;
    for (const int n : members) {
      for (const int id : node(n).inputs) {
        const bool known = std::find(joined.inputs.begin(), joined.inputs.end(), id) != joined.inputs.end();
        if (!known && !contains(members, graph_.producer_index(id))) joined.inputs.push_back(id);
      }
    }
    std::stable_partition(joined.inputs.begin(), joined.inputs.end(), [&](int id) { return is_floating(graph_.type(id).dtype); });
    std::vector<TensorType> types;
    for (const int id : joined.inputs) types.push_back(graph_.type(id));

    ops::ElementwiseProgram program;
    program.inputs = static_cast<int>(joined.inputs.size());
    std::map<int, int> numbers;  // value id -> value of the program
    for (const int id : joined.inputs) numbers.emplace(id, static_cast<int>(numbers.size()));
    for (const int n : members) {
      const int result = node(n).outputs[0];
      std::vector<int> operands;
      for (const int id : node(n).inputs) operands.push_back(numbers.at(id));
      numbers[result] = program.values();
      program.instructions.push_back({node(n).op, node(n).attributes, std::move(operands)});
      if (leaves(members, result)) joined.outputs.push_back(result);
    }
    for (const int id : joined.outputs) program.outputs.push_back(numbers.at(id));
    joined.attributes = op_.join(program, types);
    return joined;
  }

  bool leaves(const Group& members, int id) const {
    const std::vector<int> readers = readers_of(id);
    return is_output_[index(id)] || std::any_of(readers.begin(), readers.end(), [&](int reader) { return !contains(members, reader); });
  }

  /// Appends the node's group to the new graph, after all that it waits for.
  void emit(int n) {
    if (done_[index(group_of_[index(n)])]) return;
    done_[index(group_of_[index(n)])] = true;
    const Group& members = group(n);
    for (const int member : members) {
      for (const int id : node(member).inputs) {
        if (!contains(members, graph_.producer_index(id))) emit(graph_.producer_index(id));
      }
      for (const int id : updated(member)) {
        for (const int reader : readers_of(id)) emit(reader);
      }
    }
    if (members.size() == 1) return rewriter_.copy(node(n));
    const Joined joined = program_of(members);
    const Values outputs = rewriter_.target().emit(op_, rewriter_(joined.inputs), *joined.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(joined.outputs[i], outputs[i]);
  }

  const Graph& graph_;
  const ops::Operator& op_;
  std::vector<std::vector<int>> readers_, needs_;  // by node: those that must come after it, and before it
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<int> order_;       // by group: its place in an order in which they can run
  std::vector<int> reached_by_;  // by group: the last search that came upon it
  int searches_ = 0;
  std::vector<bool> is_output_;  // by value id
  std::vector<bool> done_;
  Rewriter rewriter_;
};

}  // namespace

Graph join_elementwise(const Graph& graph) {
  Graph result = graph;
  for (const ops::Operator* op : ops::registry().all()) {
    if (op->join) result = Joiner(result, *op).run();
  }
  return result;
}

}  // namespace frit::graph
