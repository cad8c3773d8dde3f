#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frit/models/scope.h"

namespace frit::onnx_schema {
class AttributeProto;
class NodeProto;
}  // namespace frit::onnx_schema

namespace frit::onnx {

class File;
class Importer;

/// A value of the file that is being imported: an operator's result, an input, or an initialiser, which joins the graph when first read.
struct Operand {
  Value value = {};            ///< none until it is read
  Tensor known = {};           ///< where it does not depend on what a run is given
  std::string parameter = {};  ///< the name of a variable that it is to be; empty for others
  bool refused = false;        ///< what would give it is not supported

  /// Numbers that every run draws anew, evenly between two bounds, or which of them are below another one.
  struct Random {
    TensorType type;
    double low, high;
    std::optional<double> below = {};
    bool read = false;
  };
  std::optional<Random> random = {};    ///< instead of a value
  std::optional<Values> sequence = {};  ///< likewise, several of them
};

/// What is not supported of a node. The importer adds which node it is.
class Unsupported final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A node of the file as the function that emits its operator sees it: inputs, attributes, and where to emit.
class Call {
 public:
  Call(const Scope& scope, const File& file, const onnx_schema::NodeProto& node, Graph& graph, std::vector<Operand*> inputs,
       Importer* importer = nullptr)
      : scope_(&scope), file_(&file), node_(&node), graph_(&graph), inputs_(std::move(inputs)), importer_(importer) {}

  const std::string& op() const;
  std::int64_t opset() const;
  Graph& graph() const { return *graph_; }
  /// Which part of the file's float32 the graph has.
  DType real() const { return scope_->dtype(); }

  std::size_t inputs() const { return inputs_.size(); }
  std::size_t outputs() const;
  bool has_input(std::size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  bool wants_output(std::size_t i) const;
  Value operator[](std::size_t i) const;
  Value optional(std::size_t i) const { return has_input(i) ? (*this)[i] : Value(); }
  Values all() const;
  /// The input as a variable that only operators update, where it is an initialiser that nothing has read yet; else none.
  Value buffer(std::size_t i) const;
  /// Whether all of the input is this number, and no run changes it: an initialiser does not count under a name like "norm.weight", a
  /// layer's, which may be trained.
  bool is_always(std::size_t i, double number) const;
  /// What the node gives, output by output, where that is not a value of the graph each: random numbers, which none has, or sequences.
  void give(std::vector<Operand> results) const { given_ = std::move(results); }
  void draw(const Operand::Random& numbers) const { give({{.random = numbers}}); }
  const std::vector<Operand>& given() const { return given_; }
  bool is_sequence(std::size_t i) const { return has_input(i) && inputs_[i]->sequence.has_value(); }
  /// The values of an input that is one.
  const Values& sequence(std::size_t i) const;
  bool is_random(std::size_t i) const { return has_input(i) && inputs_[i]->random.has_value(); }
  /// What the node gives is which of the input's random numbers are below `bound`.
  void draw_below(std::size_t i, double bound) const;
  /// 1 where an input that tells it is true, else 0, as numbers; outside of training everywhere the share of the ones, as nothing is left
  /// to chance there. Once for an input.
  Value chance(std::size_t i) const { return chance(random(i, /*compared=*/true)); }
  Value chance(const Operand::Random& numbers) const;
  /// Whether there are only constants to compute: the node's own graphs are not run then.
  bool folds() const { return importer_ == nullptr; }
  /// What the graph that is an attribute's value gives of these inputs.
  std::vector<Operand> run_graph(std::string_view attribute, const std::vector<Operand>& inputs) const;
  const Operand& operand(std::size_t i) const { return *inputs_[i]; }
  /// The i64 scalar that counts the runs of a random operator, named after output 0.
  Value counter() const;
  bool is_initializer(std::size_t i) const { return has_input(i) && !inputs_[i]->parameter.empty(); }

  /// An input whose value must not depend on what a run is given.
  Tensor constant(std::size_t i) const;
  bool is_constant(std::size_t i) const { return has_input(i) && inputs_[i]->known.defined(); }
  std::vector<std::int64_t> integers(std::size_t i) const { return constant(i).to_vector<std::int64_t>(); }
  std::vector<double> reals(std::size_t i) const { return constant(i).to_vector<double>(); }

  bool has(std::string_view attribute) const { return find(attribute) != nullptr; }
  std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const;
  double real(std::string_view attribute, double otherwise) const;
  std::string text(std::string_view attribute, std::string_view otherwise) const;
  std::vector<std::int64_t> integers(std::string_view attribute) const;  ///< empty if it is missing
  std::vector<double> reals(std::string_view attribute) const;           ///< likewise
  Tensor tensor(std::string_view attribute) const;
  /// What was an attribute at first and an input later, such as axes; none if neither is there.
  std::optional<std::vector<std::int64_t>> integers(std::string_view attribute, std::size_t input) const;

  /// A tensor of the file's, float32 as the scope has it.
  Tensor converted(const Tensor& tensor) const { return tensor.dtype() == DType::f32 ? tensor.to(real()) : tensor; }
  Value emit(const Tensor& tensor) const { return graph_->constant(converted(tensor)); }
  Value emit(const std::vector<std::int64_t>& numbers) const;
  /// Numbers of a dtype.
  Value emit(const std::vector<double>& numbers, const Shape& shape, DType dtype) const;
  /// The dtype that an element type is in the graph.
  DType dtype_of(std::int64_t element_type) const;

  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    throw Unsupported(concat(parts...));
  }
  template <class... Parts>
  void require_support(bool condition, const Parts&... parts) const {
    if (!condition) unsupported(parts...);
  }

 private:
  const onnx_schema::AttributeProto* find(std::string_view attribute) const;
  const onnx_schema::AttributeProto* find(std::string_view attribute, int type) const;
  Value join(Operand& operand, bool trainable) const;
  std::string path(const std::string& name) const { return scope_->name().empty() ? name : scope_->name() + "." + name; }

  const Scope* scope_;
  const File* file_;
  /// The input's, which nothing else has read, once they are compared, or before.
  Operand::Random& random(std::size_t i, bool compared) const;

  const onnx_schema::NodeProto* node_;
  Graph* graph_;
  std::vector<Operand*> inputs_;
  Importer* importer_;  ///< of a node's own graphs
  mutable std::vector<Operand> given_;
};

/// Emits a node's operator: one value an output, of which the last ones may be missing.
using Convert = Values (*)(const Call& call);
using OperatorTable = std::map<std::string, Convert, std::less<>>;

/// The standard operators that are supported, by name.
const OperatorTable& operator_table();

}  // namespace frit::onnx
