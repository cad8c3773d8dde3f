#include "frit/graph/together.h"

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>
#include <set>

#include "frit/graph/executable.h"
#include "frit/graph/index.h"
#include "frit/graph/preparation.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

bool is_computed(const Node& node) { return node.kind == NodeKind::operation && !node.op->view; }

/// Equal for operations that one call of a kernel may compute; empty if the node's kernel computes but itself.
std::string key_of(const Graph& graph, const Node& node, Device device) {
  if (!is_computed(node) || !node.op->kernel_on(device).run_together) return {};
  std::string key = concat(node.op->name, " {", node.attributes.text(), "}");
  for (const int id : node.inputs) key += concat(' ', graph.type(id).dtype);
  for (const int id : node.outputs) key += concat(" -> ", graph.type(id).dtype);
  return key;
}

/// By node index: the operations that it waits for and those that wait for it, views seen through. Leaves and views have none.
struct Waits {
  std::vector<std::vector<int>> before, after;

  explicit Waits(const Graph& graph) : before(graph.nodes().size()), after(graph.nodes().size()) {
    std::vector<std::vector<int>> readers(index(graph.value_count()));
    for (int n = 0; n < static_cast<int>(graph.nodes().size()); ++n) {
      const Node& node = graph.nodes()[index(n)];
      if (!is_computed(node)) continue;
      for (const int id : node.inputs) {
        const int source = source_of(graph, id);
        readers[index(source)].push_back(n);
        if (is_computed(graph.producer(source))) add(graph.producer_index(source), n);
      }
    }
    for (int n = 0; n < static_cast<int>(graph.nodes().size()); ++n) {
      const Node& node = graph.nodes()[index(n)];
      if (!is_computed(node)) continue;
      for (const int input : node.op->mutates) {
        if (index(input) >= node.inputs.size()) continue;
        for (const int reader : readers[index(source_of(graph, node.inputs[index(input)]))]) {
          if (reader != n) add(std::min(reader, n), std::max(reader, n));
        }
      }
    }
  }

 private:
  void add(int first, int second) {
    before[index(second)].push_back(first);
    after[index(first)].push_back(second);
  }
};

/// Gives operations of one key the place of one of them. A place is the index of a node that stays there.
class Gathering {
 public:
  Gathering(const Graph& graph, Device device, std::vector<std::string> keys)
      : graph_(graph), waits_(graph), keys_(std::move(keys)), place_(keys_.size()), alive_(keys_.size(), 0) {
    std::iota(place_.begin(), place_.end(), 0);
    const BufferPlan buffers = plan_buffers(graph, device);
    for (const Lifetime& lifetime : buffers.lifetimes) add_alive(std::max(lifetime.first, 0), lifetime.last + 1, aligned(lifetime.bytes));
    limit_ = *std::max_element(alive_.begin(), alive_.end());
  }

  Graph run() {
    for (int n = 0; n < size(); ++n) move_early(n);
    for (int n = size() - 1; n >= 0; --n) move_late(n);
    std::vector<int> order(keys_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return sorting_place(a) < sorting_place(b); });
    Rewriter rewriter(graph_);
    for (const int n : order) rewriter.copy(node(n));
    return rewriter.finish();
  }

 private:
  int size() const { return static_cast<int>(keys_.size()); }
  const Node& node(int n) const { return graph_.nodes()[index(n)]; }

  /// Leaves come first, views right after what they are views of.
  int sorting_place(int n) const {
    if (is_computed(node(n))) return place_[index(n)];
    if (node(n).kind != NodeKind::operation) return -1;
    const int source = graph_.producer_index(source_of(graph_, node(n).outputs[0]));
    return is_computed(node(source)) ? place_[index(source)] : -1;
  }
  int last_place(const std::vector<int>& nodes, int none) const {
    for (const int n : nodes) none = std::max(none, place_[index(n)]);
    return none;
  }
  int first_place(const std::vector<int>& nodes) const {
    int first = INT_MAX;
    for (const int n : nodes) first = std::min(first, place_[index(n)]);
    return first;
  }

  /// What waits for nothing: to the nearest earlier place of its kind at which there is memory for its results.
  void move_early(int n) {
    if (keys_[index(n)].empty() || !waits_.before[index(n)].empty()) return;
    std::set<int>& places = places_[keys_[index(n)]];
    const std::int64_t given = bytes_of(node(n).outputs);
    const auto place = std::find_if(places.rbegin(), places.rend(), [&](int earlier) { return fits(earlier, n, given); });
    if (place == places.rend()) {
      places.insert(n);
    } else {
      place_[index(n)] = *place;
      add_alive(*place, n, given);
    }
  }

  /// What waits for something: to the nearest later place before which nobody needs it, and at which there is memory for what it reads.
  void move_late(int n) {
    if (keys_[index(n)].empty() || waits_.before[index(n)].empty()) return;
    std::set<int>& places = places_[keys_[index(n)]];
    const std::int64_t kept = dying_bytes(n), given = bytes_of(node(n).outputs);
    const auto end = places.lower_bound(first_place(waits_.after[index(n)]));
    const auto place = std::find_if(places.upper_bound(n), end,
                                    [&](int later) { return fits(n + 1, later, kept - given) && fits(later, later + 1, kept); });
    if (place == end) {
      places.insert(n);
    } else {
      place_[index(n)] = *place;
      add_alive(n + 1, *place + 1, kept);
      add_alive(n, *place, -given);
    }
  }

  bool fits(int first, int end, std::int64_t bytes) const {
    return std::all_of(alive_.begin() + first, alive_.begin() + end, [&](std::int64_t alive) { return alive + bytes <= limit_; });
  }
  void add_alive(int first, int end, std::int64_t bytes) {
    for (int n = first; n < std::min(end, size()); ++n) alive_[index(n)] += bytes;
  }

  static std::int64_t aligned(std::int64_t bytes) { return (bytes + plan_alignment - 1) / plan_alignment * plan_alignment; }
  std::int64_t bytes_of(const std::vector<int>& values) const {
    std::int64_t bytes = 0;
    for (const int id : values) bytes += aligned(graph_.type(id).bytes());
    return bytes;
  }
  /// Of what nobody else reads later.
  std::int64_t dying_bytes(int n) const {
    std::int64_t bytes = 0;
    for (const int id : node(n).inputs) {
      const int source = source_of(graph_, id), producer = graph_.producer_index(source);
      if (!is_computed(node(producer))) continue;
      if (last_place(waits_.after[index(producer)], n) == n) bytes += aligned(graph_.type(source).bytes());
    }
    return bytes;
  }

  const Graph& graph_;
  Waits waits_;
  std::vector<std::string> keys_;
  std::vector<int> place_;
  std::vector<std::int64_t> alive_;  // bytes, by place
  std::int64_t limit_;
  std::map<std::string, std::set<int>> places_;  // by key
};

std::vector<std::string> keys_of(const Graph& graph, Device device) {
  const std::vector<bool> prepared = find_preparation(graph);
  std::vector<std::string> keys;
  for (std::size_t n = 0; n < prepared.size(); ++n) {
    keys.push_back(key_of(graph, graph.nodes()[n], device));
    if (prepared[n] && !keys.back().empty()) keys.back() += " once";  // no step is computed in part
  }
  return keys;
}

}  // namespace

std::vector<int> first_of_steps(const Graph& graph, Device device) {
  const std::vector<std::string> keys = keys_of(graph, device);
  const Waits waits(graph);
  std::vector<int> first(keys.size());
  int open = -1;  // the first node of the last operation's step
  for (int n = 0; n < static_cast<int>(keys.size()); ++n) {
    first[index(n)] = n;
    if (!is_computed(graph.nodes()[index(n)])) continue;
    const auto in_step = [&](int other) { return first[index(other)] == open; };
    const std::vector<int>& before = waits.before[index(n)];
    const bool joins =
        open >= 0 && !keys[index(n)].empty() && keys[index(n)] == keys[index(open)] && std::none_of(before.begin(), before.end(), in_step);
    open = first[index(n)] = joins ? open : n;
  }
  return first;
}

Graph bring_together(const Graph& graph, Device device) {
  std::vector<std::string> keys = keys_of(graph, device);
  const bool any = std::any_of(keys.begin(), keys.end(), [](const std::string& key) { return !key.empty(); });
  return any ? Gathering(graph, device, std::move(keys)).run() : graph;
}

}  // namespace frit::graph
