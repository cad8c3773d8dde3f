#include "frit/graph/graph.h"

#include <algorithm>

namespace frit {

using graph::Node;
using graph::NodeKind;

Value Graph::input(const std::string& name, const Shape& shape, DType dtype) {
  Node node;
  node.kind = NodeKind::input;
  node.name = name;
  return append_leaf(std::move(node), {dtype, shape});
}

Value Graph::variable(const std::string& name, const TensorType& type, Initializer initialize, bool trainable) {
  Node node;
  node.kind = NodeKind::variable;
  node.name = name;
  node.initialize = std::move(initialize);
  node.trainable = trainable;
  return append_leaf(std::move(node), type);
}

Value Graph::constant(const Tensor& tensor) {
  require(tensor.defined(), "constant: the tensor is undefined");
  Node node;
  node.kind = NodeKind::constant;
  node.constant = tensor.contiguous();
  return append_leaf(std::move(node), {tensor.dtype(), tensor.shape()});
}

Value Graph::append_leaf(Node node, const TensorType& type) {
  type.bytes();  // throws for a negative or overflowing shape
  if (node.kind != NodeKind::constant) {
    require(!node.name.empty(), "an input or variable needs a name");
    require(named_.emplace(node.name, nodes_.size()).second, "the graph has an input or variable named \"", node.name, "\" already");
  }
  return Value(*this, append(std::move(node), std::span(&type, 1)));
}

Values Graph::emit(const ops::Operator& op, std::span<const Value> inputs, ops::Attributes attributes) {
  Node node;
  std::vector<TensorType> types;
  for (const Value& input : inputs) {
    require(&input.emitter() == this, op.name, ": an input belongs to another graph");
    node.inputs.push_back(input.id());
    types.push_back(input.type());
  }
  for (const int mutated : op.mutates) {
    if (static_cast<std::size_t>(mutated) >= inputs.size()) continue;
    require(producer(inputs[static_cast<std::size_t>(mutated)].id()).kind == NodeKind::variable, op.name, ": input \"",
            op.inputs[std::min(static_cast<std::size_t>(mutated), op.inputs.size() - 1)].name,
            "\" is updated in place and must be a variable");
  }
  node.op = &op;
  const std::vector<TensorType> results = op.infer_types(types, attributes);
  node.attributes = std::move(attributes);
  const int first = append(std::move(node), results);
  Values values;
  for (std::size_t i = 0; i < results.size(); ++i) values.emplace_back(*this, first + static_cast<int>(i));
  return values;
}

int Graph::append(Node node, std::span<const TensorType> types) {
  remake_ = nullptr;  // it would not make what is added now
  const int first = value_count();
  for (std::size_t i = 0; i < types.size(); ++i) {
    node.outputs.push_back(value_count());
    values_.push_back({static_cast<int>(nodes_.size()), static_cast<int>(i), types[i]});
  }
  nodes_.push_back(std::move(node));
  return first;
}

void Graph::output(const std::string& name, Value value) {
  require(&value.emitter() == this, "output \"", name, "\": the value belongs to another graph");
  const bool taken = std::any_of(outputs_.begin(), outputs_.end(), [&](const graph::Output& o) { return o.name == name; });
  require(!taken, "the graph has an output named \"", name, "\" already");
  outputs_.push_back({name, value.id()});
  remake_ = nullptr;
}

const TensorType& Graph::type(int id) const { return values_.at(static_cast<std::size_t>(id)).type; }

std::vector<TensorType> Graph::types(std::span<const int> ids) const {
  std::vector<TensorType> result;
  for (const int id : ids) result.push_back(type(id));
  return result;
}

const Node& Graph::producer(int id) const { return nodes_[static_cast<std::size_t>(producer_index(id))]; }

int Graph::producer_index(int id) const { return values_.at(static_cast<std::size_t>(id)).node; }

int Graph::output_index(int id) const { return values_.at(static_cast<std::size_t>(id)).index; }

const Node* Graph::find(NodeKind kind, std::string_view name) const {
  const auto place = named_.find(name);
  return place == named_.end() || nodes_[place->second].kind != kind ? nullptr : &nodes_[place->second];
}

std::vector<const Node*> Graph::all(NodeKind kind) const {
  std::vector<const Node*> result;
  for (const Node& node : nodes_) {
    if (node.kind == kind) result.push_back(&node);
  }
  return result;
}

Value Graph::output_value(std::string_view name) {
  std::string names;
  for (const graph::Output& output : outputs_) {
    if (output.name == name) return value(output.value);
    names += " " + output.name;
  }
  fail(ErrorKind::argument, "the graph has no output \"", name, "\"; it has:", names.empty() ? " none" : names);
}

Graph& Graph::of(Value value) {
  auto* const graph = dynamic_cast<Graph*>(&value.emitter());
  require(graph != nullptr, "the value does not belong to a graph");
  return *graph;
}

int graph::source_of(const Graph& graph, int value) {
  const Node* producer = &graph.producer(value);
  for (; producer->kind == NodeKind::operation && producer->op->view; producer = &graph.producer(value)) value = producer->inputs[0];
  return value;
}

std::vector<int> graph::use_counts(const Graph& graph) {
  std::vector<int> uses(static_cast<std::size_t>(graph.value_count()), 0);
  for (const Node& node : graph.nodes()) {
    for (const int input : node.inputs) ++uses[static_cast<std::size_t>(input)];
  }
  for (const Output& output : graph.outputs()) ++uses[static_cast<std::size_t>(output.value)];
  return uses;
}

}  // namespace frit
