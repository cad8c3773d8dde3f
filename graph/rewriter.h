#pragma once

#include "frit/graph/graph.h"

namespace frit::graph {

/// Builds a new graph from an old one, node by node, with a map from old values to new ones. Every pass is a loop over the old nodes that
/// copies, replaces or skips.
class Rewriter {
 public:
  explicit Rewriter(const Graph& source) : source_(source), map_(static_cast<std::size_t>(source.value_count())) {}

  Graph& target() { return target_; }
  /// The new value; a bug if there is none.
  Value operator()(int old_value) const;
  Values operator()(const std::vector<int>& old_values) const;
  void map(int old_value, Value new_value) { map_[static_cast<std::size_t>(old_value)] = new_value; }

  /// Appends the node to the new graph, its inputs mapped. Types are inferred once more.
  void copy(const Node& node);
  /// The new graph with the old one's outputs.
  Graph finish();

 private:
  const Graph& source_;
  Graph target_;
  Values map_;
};

/// The value as a result of its own, in a dtype that may be the one it has: an operation that copies it.
Value convert(Graph& target, const Value& value, DType dtype);
/// The same elements in another shape, one size of which may be -1.
Value reshape(Graph& target, const Value& value, const Shape& shape);

}  // namespace frit::graph
