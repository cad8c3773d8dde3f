#include "frit/models/onnx/exporter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"
#include "frit/models/onnx/onnx_export.h"
#include "frit/ops/operator/run.h"

namespace frit {
namespace onnx {
namespace {

constexpr std::int64_t exported_opset = 17, ir_version = 8;
/// What is computed for the file may take so many bytes, or as many as the largest that it is computed from.
constexpr std::int64_t computed_bytes = 1 << 20;

void set(AttributeProto& attribute, const AttributeValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    attribute.set_type(AttributeProto::INT);
    attribute.set_i(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    attribute.set_type(AttributeProto::FLOAT);
    attribute.set_f(static_cast<float>(*real));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    attribute.set_type(AttributeProto::STRING);
    attribute.set_s(*text);
  } else {
    attribute.set_type(AttributeProto::INTS);
    for (const std::int64_t number : std::get<std::vector<std::int64_t>>(value)) attribute.add_ints(number);
  }
}

}  // namespace

std::int64_t element_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return TensorProto::FLOAT;
    case DType::f64: return TensorProto::DOUBLE;
    case DType::f16: return TensorProto::FLOAT16;
    case DType::bf16: return TensorProto::BFLOAT16;
    case DType::i64: return TensorProto::INT64;
    case DType::i32: return TensorProto::INT32;
    case DType::u8: return TensorProto::UINT8;
  }
  fail(ErrorKind::bug, "element_of: ", dtype);
}

void Exporter::declare(ValueInfoProto& info, const std::string& name, const TensorType& type, const Shape& other) {
  info.set_name(name);
  TypeProto_Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(static_cast<std::int32_t>(element_of(type.dtype)));
  TensorShapeProto& shape = *tensor.mutable_shape();
  for (int i = 0; i < type.shape.rank(); ++i) {
    auto& size = *shape.add_dim();
    const std::string free_name = i == 0 ? "batch" : concat(name, "_axis", i);
    type.shape[i] == other[i] ? size.set_dim_value(type.shape[i]) : size.set_dim_param(free_name);
  }
}

const Tensor* Exporter::known(int value) const {
  const auto place = known_.find(value);
  return place == known_.end() ? nullptr : &place->second;
}

std::string Exporter::name_of(int value) {
  const auto place = names_.find(value);
  if (place != names_.end()) {
    if (const Tensor* tensor = known(value)) initialize(place->second, *tensor);
    return place->second;
  }
  const Tensor* tensor = known(value);
  if (tensor == nullptr) fail(ErrorKind::argument, "ONNX has no operator for a further result of ", graph_.producer(value).op->name);
  return names_[value] = constant(*tensor);
}

void Exporter::initialize(const std::string& name, const Tensor& tensor) {
  if (!initialized_.insert(name).second) return;
  TensorProto& proto = *model_.mutable_graph()->add_initializer();
  proto.set_name(name);
  proto.set_data_type(static_cast<std::int32_t>(element_of(tensor.dtype())));
  for (const std::int64_t size : tensor.shape()) proto.add_dims(size);
  const Tensor data = tensor.to(Device::cpu()).contiguous();
  proto.set_raw_data(data.raw(), static_cast<std::size_t>(data.bytes()));
}

std::string Exporter::constant(const Tensor& tensor) {
  const std::string name = fresh("constant_");
  initialize(name, tensor);
  return name;
}

std::string Exporter::integers(const std::vector<std::int64_t>& numbers) {
  return constant(Tensor::from(numbers, {static_cast<std::int64_t>(numbers.size())}));
}

std::string Exporter::add(const std::string& op, const Names& inputs, const NamedAttributes& attributes) {
  NodeProto& node = *model_.mutable_graph()->add_node();
  node.set_op_type(op);
  const std::string result = fresh("result_");
  node.set_name(concat(op, '_', made_));
  for (const std::string& input : inputs) node.add_input(input);
  for (const NamedAttribute& given : attributes) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(given.name);
    set(attribute, given.value);
  }
  node.add_output(result);
  return result;
}

/// Inputs, variables and outputs keep their names, of which ONNX wants each once.
void Exporter::take_names() {
  const auto take = [&](const std::string& name) {
    require(taken_.insert(name).second, "two of the graph's inputs, variables and outputs are called \"", printable(name),
            "\": ONNX needs a name for each");
  };
  for (const graph::Node& node : graph_.nodes()) {
    if (node.kind == graph::NodeKind::input || node.kind == graph::NodeKind::variable) take(node.name);
  }
  for (const graph::Output& output : graph_.outputs()) take(output.name);
}

std::string Exporter::fresh(const char* prefix) {
  std::string name;
  do {
    name = concat(prefix, ++made_);
  } while (taken_.contains(name));
  return name;
}

void Exporter::add_result(int value) {
  NodeProto& node = *model_.mutable_graph()->mutable_node()->rbegin();
  node.add_output(names_[value] = fresh("result_"));
}

void Exporter::leaf(const graph::Node& node, const Graph& other) {
  const int value = node.outputs[0];
  if (node.kind == graph::NodeKind::constant) known_[value] = node.constant;
  if (node.kind == graph::NodeKind::constant) return;
  names_[value] = node.name;
  if (node.kind == graph::NodeKind::variable) known_[value] = state_.at(node.name).to(Device::cpu());
  if (node.kind != graph::NodeKind::input) return;
  const int there = other.find(graph::NodeKind::input, node.name)->outputs[0];
  declare(*model_.mutable_graph()->add_input(), node.name, type(value), other.type(there).shape);
}

bool Exporter::fold(const graph::Node& node) {
  std::vector<Tensor> inputs;
  std::int64_t bytes = computed_bytes;
  for (const int input : node.inputs) {
    const Tensor* tensor = known(input);
    if (tensor == nullptr) return false;
    bytes = std::max(bytes, tensor->bytes());
    inputs.push_back(*tensor);
  }
  for (const int output : node.outputs) {
    if (type(output).bytes() > bytes) return false;
  }
  const std::vector<Tensor> results = ops::run(*node.op, inputs, node.attributes);
  for (std::size_t i = 0; i < results.size(); ++i) known_[node.outputs[i]] = results[i];
  return true;
}

ModelProto Exporter::run(const Graph& other) {
  model_.set_ir_version(ir_version);
  model_.set_producer_name("frit");
  model_.add_opset_import()->set_version(exported_opset);
  model_.mutable_graph()->set_name("frit");
  take_names();
  std::set<std::string> unknown;
  for (const graph::Node& node : graph_.nodes()) {
    if (node.kind != graph::NodeKind::operation) {
      leaf(node, other);
    } else if (!fold(node)) {
      const auto spelling = spelling_table().find(node.op->name);
      if (spelling == spelling_table().end()) unknown.insert(node.op->name);
      // What is left is looked at for its operators alone.
      names_[node.outputs[0]] = unknown.empty() ? spelling->second(Operation(*this, node)) : "";
    }
  }
  std::string list;
  for (const std::string& op : unknown) list += " " + op;
  require(unknown.empty(), "there is no ONNX spelling here of what the graph has:", list);
  for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
    const graph::Output& output = graph_.outputs()[i];
    NodeProto& node = *model_.mutable_graph()->add_node();
    node.set_op_type("Identity");
    node.add_input(name_of(output.value));
    node.add_output(output.name);
    declare(*model_.mutable_graph()->add_output(), output.name, type(output.value), other.type(other.outputs()[i].value).shape);
  }
  return std::move(model_);
}

Operation::Operation(Exporter& to, const graph::Node& node) : out(to), node_(node), attributes_(node.attributes.json()) {}

Names Operation::inputs() const {
  Names names;
  for (std::size_t i = 0; i < node_.inputs.size(); ++i) names.push_back(input(i));
  return names;
}

std::int64_t Operation::integer(const std::string& attribute) const { return nlohmann::json::parse(attributes_).at(attribute); }
double Operation::real(const std::string& attribute) const {
  const nlohmann::json value = nlohmann::json::parse(attributes_).at(attribute);
  if (!value.is_string()) return value;
  return value == "nan" ? NAN : value == "inf" ? HUGE_VAL : -HUGE_VAL;  // as attributes are written
}
bool Operation::is(const std::string& attribute) const { return !nlohmann::json::parse(attributes_).at(attribute).is_null(); }
bool Operation::flag(const std::string& attribute) const { return nlohmann::json::parse(attributes_).at(attribute); }
std::string Operation::text(const std::string& attribute) const { return nlohmann::json::parse(attributes_).at(attribute); }
std::vector<std::int64_t> Operation::list(const std::string& attribute) const { return nlohmann::json::parse(attributes_).at(attribute); }

namespace {

enum class Free { batch_and_image, batch };

/// The graph for inputs of other sizes, if its operators take them: of a batch larger by `more` (0: as they are), and where images are free
/// of images twice as large and `more` - 1 pixels.
std::optional<Graph> larger(const Graph& graph, Free free, std::int64_t more) {
  std::map<std::string, TensorType> types;
  for (const graph::Node* input : graph.all(graph::NodeKind::input)) {
    TensorType type = graph.type(input->outputs[0]);
    if (type.shape.empty() && more > 0) return std::nullopt;
    if (more > 0) type.shape[0] += more;
    for (int i = 2; i < type.shape.rank() && free == Free::batch_and_image; ++i) type.shape[i] = 2 * type.shape[i] + more - 1;
    types[input->name] = type;
  }
  try {
    return graph::specialize(graph, types);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument && error.kind() != ErrorKind::format) throw;
    return std::nullopt;
  }
}

}  // namespace
}  // namespace onnx

std::string to_onnx(const Graph& graph, const State& state) {
  const Graph inference = graph::for_inference(graph);
  const Graph own = *onnx::larger(inference, onnx::Free::batch, 0);
  const auto written = [&](const Graph& one, const Graph& other) { return onnx::Exporter(one, state).run(other).SerializeAsString(); };
  for (const onnx::Free free : {onnx::Free::batch_and_image, onnx::Free::batch}) {
    const std::optional<Graph> other = onnx::larger(inference, free, 1), odd = onnx::larger(inference, free, 2);
    if (!other) continue;
    // What is the same for even and odd sizes is taken to hold for all that the operators take.
    std::string bytes = written(own, *other);
    const bool same = !bytes.empty() && bytes == written(*other, own) && (!odd || bytes == written(*odd, own));
    if (same) return bytes;
  }
  std::string bytes = written(own, own);
  require(!bytes.empty(), "the ONNX model would have more than the 2 GiB that protobuf can write");
  return bytes;
}

void export_onnx(const std::string& path, const Graph& graph, const State& state) { write_text(path, to_onnx(graph, state)); }

}  // namespace frit
