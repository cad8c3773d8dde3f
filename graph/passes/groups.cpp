#include "frit/graph/passes/groups.h"

#include <algorithm>
#include <map>
#include <utility>


namespace frit::graph {
namespace {

bool contains(const std::vector<int>& nodes, int n) { return std::binary_search(nodes.begin(), nodes.end(), n); }

std::vector<int> merged(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

Groups::Groups(const Graph& graph, const ops::Operator& op)
    : graph_(graph),
      op_(op),
      readers_(graph.nodes().size()),
      needs_(graph.nodes().size()),
      updates_(index(graph.value_count())),
      reached_by_(graph.nodes().size(), 0),
      is_output_(index(graph.value_count()), false) {
  const int size = static_cast<int>(graph.nodes().size());
  for (const Output& output : graph.outputs()) is_output_[index(output.value)] = true;
  for (int n = 0; n < size; ++n) {
    groups_.push_back({{n}});
    group_of_.push_back(n);
    order_.push_back(n);
    for (const int id : node(n).inputs) put_after(graph.producer_index(id), n);
  }
  for (int n = 0; n < size; ++n) {
    for (const int id : updated(n)) {
      updates_[index(id)].push_back(n);
      for (const int reader : readers_of(id)) {
        if (reader < n) put_after(reader, n);  // not a reader, but it must wait for one
      }
    }
  }
}

void Groups::put_after(int first, int second) {
  readers_[index(first)].push_back(second);
  needs_[index(second)].push_back(first);
}

bool Groups::joinable(int n) const { return node(n).kind == NodeKind::operation && node(n).op->elementwise && node(n).op->mutates.empty(); }

std::vector<int> Groups::updated(int n) const {
  std::vector<int> ids;
  if (node(n).kind != NodeKind::operation) return ids;
  for (const int input : node(n).op->mutates) {
    if (index(input) < node(n).inputs.size()) ids.push_back(node(n).inputs[index(input)]);
  }
  return ids;
}

/// The nodes that update what the node reads.
std::vector<int> Groups::updates_of(int n) const {
  std::vector<int> nodes;
  for (const int id : node(n).inputs) nodes.insert(nodes.end(), updates_[index(id)].begin(), updates_[index(id)].end());
  return nodes;
}

std::vector<int> Groups::readers_of(int id) const {
  std::vector<int> result;
  for (const int reader : readers_[index(graph_.producer_index(id))]) {
    const std::vector<int>& inputs = node(reader).inputs;
    if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) result.push_back(reader);
  }
  return result;
}

bool Groups::leaves(int id, const std::vector<int>& but) const { return is_read_outside(of(graph_.producer_index(id)), id, but); }

bool Groups::is_read_outside(const Group& group, int id, const std::vector<int>& but) const {
  const std::vector<int> readers = readers_of(id);
  const int producer = graph_.producer_index(id);
  const auto reads = [&](int reader) {
    const bool counts = std::find(but.begin(), but.end(), reader) == but.end();
    return counts && !contains(group.members, reader) && !contains(of(reader).recomputed, producer);
  };
  return is_output_[index(id)] || std::any_of(readers.begin(), readers.end(), reads);
}

void Groups::try_join(int a, int b) {
  if (!joinable(a) || !joinable(b) || same(a, b) || !(shape(a) == shape(b))) return;
  Group both{merged(of(a).members, of(b).members)};
  if (!program_of(both).attributes) return;
  int first = group_of_[index(a)], second = group_of_[index(b)];
  if (order_[index(first)] > order_[index(second)]) std::swap(first, second);
  const std::optional<std::vector<int>> after = between(first, second, readers_);
  if (!after) return;  // something outside of both needs the one and is needed by the other
  reorder(*between(second, first, needs_), first, second, *after);
  for (const int member : both.members) group_of_[index(member)] = first;
  groups_[index(second)] = {};
  groups_[index(first)] = std::move(both);
}

/// The groups to which `edges` lead from the one group, in the order between it and the other; none if they lead on to the other.
std::optional<std::vector<int>> Groups::between(int from, int to, const std::vector<std::vector<int>>& edges) {
  const auto [low, high] = std::minmax(order_[index(from)], order_[index(to)]);
  std::vector<int> found = {from};
  ++searches_;
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const int member : groups_[index(found[i])].members) {
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
void Groups::reorder(std::vector<int> before, int first, int second, std::vector<int> after) {
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

Groups::Group Groups::with(Group group, const std::vector<int>& recomputed) {
  group.recomputed = merged(group.recomputed, recomputed);
  return group;
}

bool Groups::may_recompute(int n, const std::vector<int>& recomputed) const {
  const int place = order_[index(group_of_[index(n)])];
  return std::all_of(recomputed.begin(), recomputed.end(), [&](int r) {
    const std::vector<int> updates = updates_of(r);
    return std::all_of(updates.begin(), updates.end(), [&](int update) { return place < order_[index(group_of_[index(update)])]; });
  });
}

void Groups::recompute(int n, const std::vector<int>& recomputed) {
  Group& group = groups_[index(group_of_[index(n)])];
  group = with(std::move(group), recomputed);
  for (const int r : recomputed) {
    for (const int id : node(r).inputs) put_after(graph_.producer_index(id), n);
    for (const int update : updates_of(r)) put_after(n, update);
  }
}

Groups::Joined Groups::program_of(const Group& group) const {
  const std::vector<int> nodes = merged(group.members, group.recomputed);
  Joined joined;
  for (const int n : nodes) {
    for (const int id : node(n).inputs) {
      const bool known = std::find(joined.inputs.begin(), joined.inputs.end(), id) != joined.inputs.end();
      if (!known && !contains(nodes, graph_.producer_index(id))) joined.inputs.push_back(id);
    }
  }
  std::stable_partition(joined.inputs.begin(), joined.inputs.end(), [&](int id) { return is_floating(graph_.type(id).dtype); });
  std::vector<TensorType> types;
  for (const int id : joined.inputs) types.push_back(graph_.type(id));

  ops::ElementwiseProgram program;
  program.inputs = static_cast<int>(joined.inputs.size());
  std::map<int, int> numbers;  // value id -> value of the program
  for (const int id : joined.inputs) numbers.emplace(id, static_cast<int>(numbers.size()));
  for (const int n : nodes) {
    const int result = node(n).outputs[0];
    std::vector<int> operands;
    for (const int id : node(n).inputs) operands.push_back(numbers.at(id));
    numbers[result] = program.values();
    program.instructions.push_back({node(n).op, node(n).attributes, std::move(operands)});
    if (contains(group.members, n) && is_read_outside(group, result)) joined.outputs.push_back(result);
  }
  for (const int id : joined.outputs) program.outputs.push_back(numbers.at(id));
  joined.attributes = op_.join(program, types);
  joined.program = std::move(program);
  return joined;
}

}  // namespace frit::graph
