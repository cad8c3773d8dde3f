#pragma once

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "frit/graph/state.h"
#include "frit/models/onnx/schema.h"

namespace frit::onnx {

using AttributeValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;
struct NamedAttribute {
  const char* name;
  AttributeValue value;
};
using NamedAttributes = std::vector<NamedAttribute>;
using Names = std::vector<std::string>;

std::int64_t element_of(DType dtype);

/// Writes an inference graph's operations as ONNX nodes, one after another. Values go by name.
class Exporter {
 public:
  Exporter(const Graph& graph, const State& state) : graph_(graph), state_(state) {}

  /// Sizes of inputs and outputs that are others in `other`, the graph for other input shapes, are declared free.
  ModelProto run(const Graph& other);

  // For the operators' spellings.
  std::string add(const std::string& op, const Names& inputs, const NamedAttributes& attributes = {});
  /// The value is a further result of the node that was added last.
  void add_result(int value);
  std::string constant(const Tensor& tensor);
  std::string integers(const std::vector<std::int64_t>& numbers);
  std::string number(double value, DType dtype) { return constant(Tensor::full({}, value, dtype)); }
  /// nullptr for what depends on the inputs.
  const Tensor* known(int value) const;
  std::string name_of(int value);
  const TensorType& type(int value) const { return graph_.type(value); }

 private:
  void take_names();
  std::string fresh(const char* prefix);
  void leaf(const graph::Node& node, const Graph& other);
  bool fold(const graph::Node& node);
  void initialize(const std::string& name, const Tensor& tensor);
  static void declare(ValueInfoProto& info, const std::string& name, const TensorType& type, const Shape& other);

  const Graph& graph_;
  const State& state_;
  ModelProto model_;
  std::map<int, Tensor> known_;
  std::map<int, std::string> names_;
  std::set<std::string> initialized_;
  std::set<std::string> taken_;  ///< names of the graph's
  int made_ = 0;                 ///< names
};

/// One operation as its spelling sees it: the names of its inputs, and its attributes.
class Operation {
 public:
  Operation(Exporter& to, const graph::Node& node);

  std::string input(std::size_t i) const { return out.name_of(node_.inputs.at(i)); }
  bool has(std::size_t i) const { return i < node_.inputs.size(); }
  Names inputs() const;
  const TensorType& type(std::size_t i = 0) const { return out.type(node_.inputs.at(i)); }
  const TensorType& result() const { return out.type(node_.outputs[0]); }
  int output(std::size_t i) const { return node_.outputs.at(i); }
  const Tensor* known(std::size_t i) const { return out.known(node_.inputs.at(i)); }

  std::int64_t integer(const std::string& attribute) const;
  double real(const std::string& attribute) const;
  bool is(const std::string& attribute) const;  ///< a number or a flag that is there
  bool flag(const std::string& attribute) const;
  std::string text(const std::string& attribute) const;
  std::vector<std::int64_t> list(const std::string& attribute) const;

  Exporter& out;

 private:
  const graph::Node& node_;
  std::string attributes_;  ///< JSON
};

/// Emits the nodes that compute the operation, and names its result.
using Spell = std::string (*)(const Operation& operation);
using SpellingTable = std::map<std::string, Spell, std::less<>>;
const SpellingTable& spelling_table();

}  // namespace frit::onnx
