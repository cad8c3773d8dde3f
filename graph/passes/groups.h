#pragma once

#include <optional>

#include "frit/graph/graph.h"
#include "frit/graph/index.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::graph {

/// Operations of which one operator computes several at once, elementwise ones of one shape, in groups that can run one after the other.
class Groups {
 public:
  struct Group {
    std::vector<int> members;          ///< nodes, ascending
    std::vector<int> recomputed = {};  ///< of other groups: computed here once more, for the members alone; ascending
  };
  /// What computes a group.
  struct Joined {
    std::vector<int> inputs, outputs;  ///< value ids
    ops::ElementwiseProgram program;
    std::optional<ops::Attributes> attributes;
  };

  /// Each operation by itself.
  Groups(const Graph& graph, const ops::Operator& op);

  const Graph& graph() const { return graph_; }
  const Node& node(int n) const { return graph_.nodes()[static_cast<std::size_t>(n)]; }
  const Group& of(int n) const { return groups_[index(group_of_[index(n)])]; }
  bool same(int a, int b) const { return group_of_[index(a)] == group_of_[index(b)]; }
  bool joinable(int n) const;
  const Shape& shape(int n) const { return graph_.type(node(n).outputs[0]).shape; }
  /// The nodes that must come before this one.
  const std::vector<int>& before(int n) const { return needs_[index(n)]; }
  /// The nodes that read the value.
  std::vector<int> readers_of(int id) const;
  /// Whether a group other than the producer's, or than these nodes, gets the value from it.
  bool leaves(int id, const std::vector<int>& but = {}) const;
  bool is_output(int id) const { return is_output_[index(id)]; }

  /// Makes one group of the two nodes' if its operator takes them, and the rest of the graph can run before or after it.
  void try_join(int a, int b);
  /// What would compute the node's group if it computed these too.
  Joined program_of(int n, const std::vector<int>& recomputed) const { return program_of(with(of(n), recomputed)); }
  Joined program_of(int n) const { return program_of(of(n)); }
  /// Whether the group may come before all that updates what the recomputed nodes read.
  bool may_recompute(int n, const std::vector<int>& recomputed) const;
  void recompute(int n, const std::vector<int>& recomputed);

 private:
  static Group with(Group group, const std::vector<int>& recomputed);
  Joined program_of(const Group& group) const;
  bool is_read_outside(const Group& group, int id, const std::vector<int>& but = {}) const;
  void put_after(int first, int second);
  std::vector<int> updated(int n) const;
  std::vector<int> updates_of(int n) const;
  std::optional<std::vector<int>> between(int from, int to, const std::vector<std::vector<int>>& edges);
  void reorder(std::vector<int> before, int first, int second, std::vector<int> after);

  const Graph& graph_;
  const ops::Operator& op_;
  std::vector<std::vector<int>> readers_, needs_;  // by node: those that must come after it, and before it
  std::vector<std::vector<int>> updates_;          // by value id: the nodes that update it
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<int> order_;       // by group: its place in an order in which they can run
  std::vector<int> reached_by_;  // by group: the last search that came upon it
  int searches_ = 0;
  std::vector<bool> is_output_;  // by value id
};

/// Values are computed again in groups that read them where fewer bytes are read and written then, and no more are kept.
void rematerialize(Groups& groups);

}  // namespace frit::graph
