#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frit/ops/operator/operator.h"

namespace frit {

/// Fills a fresh variable. `seed` differs for each variable of a run, so that the order of initialisation does not matter.
using Initializer = std::function<void(const Tensor& variable, std::uint64_t seed)>;

namespace graph {

enum class NodeKind { input, variable, constant, operation };

struct Node {
  NodeKind kind = NodeKind::operation;
  std::string name;                   ///< of an input or a variable
  const ops::Operator* op = nullptr;  ///< of an operation
  ops::Attributes attributes;
  std::vector<int> inputs;   ///< value ids
  std::vector<int> outputs;  ///< value ids
  Tensor constant;
  Initializer initialize;  ///< of a variable
  bool trainable = false;  ///< a variable that an optimizer updates
};

struct Output {
  std::string name;
  int value;
};

}  // namespace graph

/// A static graph in the order of its building, which is an order in which it can run. Nodes are only ever appended; a pass makes a new
/// graph. A copy has the same value ids; Values stay bound to the graph they came from.
class Graph final : public ops::Emitter {
 public:
  /// A tensor that the caller gives at each run. Throws ErrorKind::argument if an input or a variable has the name.
  Value input(const std::string& name, const Shape& shape, DType dtype = DType::f32);
  /// A tensor that lives from run to run in a State. Throws likewise.
  Value variable(const std::string& name, const TensorType& type, Initializer initialize, bool trainable = false);
  Value constant(const Tensor& tensor) override;
  Values emit(const ops::Operator& op, std::span<const Value> inputs, ops::Attributes attributes) override;
  /// Names a result that a run gives back.
  void output(const std::string& name, Value value);

  const std::vector<graph::Node>& nodes() const { return nodes_; }
  const std::vector<graph::Output>& outputs() const { return outputs_; }
  int value_count() const { return static_cast<int>(values_.size()); }
  Value value(int id) { return Value(*this, id); }
  const TensorType& type(int id) const override;
  std::vector<TensorType> types(std::span<const int> ids) const;
  /// The node that gives a value, and which of its outputs the value is.
  const graph::Node& producer(int id) const;
  int producer_index(int id) const;
  int output_index(int id) const;

  /// How the graph looks for inputs of other types, where its operators' attributes do not follow them: what graph::specialize returns.
  using Remake = std::function<Graph(const std::map<std::string, TensorType>& inputs)>;
  void remake_by(Remake remake) { remake_ = std::move(remake); }  ///< forgotten when something is added to the graph
  const Remake& remake() const { return remake_; }

  /// nullptr if there is none of that name.
  const graph::Node* find(graph::NodeKind kind, std::string_view name) const;
  std::vector<const graph::Node*> all(graph::NodeKind kind) const;
  /// Throws ErrorKind::argument and lists the names if there is none.
  Value output_value(std::string_view name);

  /// The graph that a value belongs to.
  static Graph& of(Value value);

 private:
  struct ValueInfo {
    int node;
    int index;
    TensorType type;
  };
  int append(graph::Node node, std::span<const TensorType> types);
  Value append_leaf(graph::Node node, const TensorType& type);

  std::vector<graph::Node> nodes_;
  std::map<std::string, std::size_t, std::less<>> named_;  // inputs and variables, by name
  std::deque<ValueInfo> values_;                           // references to types stay good as the graph grows
  std::vector<graph::Output> outputs_;
  Remake remake_;
};

namespace graph {

/// The value whose memory it is: a view's is that of what it is a view of.
int source_of(const Graph& graph, int value);

/// How often each value is read, by nodes and as an output of the graph.
std::vector<int> use_counts(const Graph& graph);

/// Throws ErrorKind::bug, naming the node, if the graph breaks a rule: inputs before use, types as inferred, unique names, only variables
/// mutated, and none read after it was, but by those that update it too: they do so in their order.
void verify(const Graph& graph);

/// One line a node: "%4 = conv2d(%0, %1) {stride=2} : f32 8x16x30x30".
std::string to_text(const Graph& graph);
/// One node's line, without its end.
std::string to_text(const Graph& graph, const Node& node);
/// For Graphviz.
std::string to_dot(const Graph& graph);

}  // namespace graph
}  // namespace frit
