#include "frit/models/onnx/onnx_model.h"

#include <google/protobuf/io/coded_stream.h>

#include <filesystem>

#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/models/onnx/file.h"
#include "frit/models/onnx/importer.h"
#include "frit/models/onnx/tensor_data.h"

namespace frit {

using onnx::File;

namespace {

constexpr std::int64_t newest_opset = 28;
/// What protobuf itself can read.
constexpr std::uint64_t largest_file = (std::uint64_t{1} << 31) - 1;
/// Of messages within each other: a tensor of a node of a graph within a few more.
constexpr int deepest = 50;

OnnxPort port(const File& file, const onnx::ValueInfoProto& info) {
  OnnxPort result;
  result.name = info.name();
  const onnx::TypeProto_Tensor& type = info.type().tensor_type();
  const std::optional<DType> dtype = onnx::dtype_of_element(type.elem_type());
  if (!info.type().has_tensor_type() || !dtype) {
    const std::string found = info.type().has_tensor_type() ? onnx::element_name(type.elem_type()) : "no tensor";
    fail(ErrorKind::format, file.name, ": \"", printable(info.name()), "\" is of a type that is not supported: ", found);
  }
  result.dtype = *dtype;
  result.has_shape = type.has_shape();
  for (const auto& size : type.shape().dim()) result.sizes.push_back(size.has_dim_value() && size.dim_value() >= 0 ? size.dim_value() : -1);
  if (result.sizes.size() > Dims::max_rank) {
    fail(ErrorKind::format, file.name, ": \"", printable(info.name()), "\" has rank ", result.sizes.size(), ", more than ", Dims::max_rank);
  }
  return result;
}

std::int64_t standard_opset(const File& file) {
  for (const onnx::OperatorSetIdProto& set : file.model.opset_import()) {
    if (!set.domain().empty() && set.domain() != "ai.onnx") continue;
    if (set.version() < 1 || set.version() > newest_opset) {
      fail(ErrorKind::format, file.name, ": opset ", set.version(), " of the standard operators: expected 1 to ", newest_opset);
    }
    return set.version();
  }
  return 1;
}

std::shared_ptr<const File> parse(std::span<const std::byte> bytes, const std::string& name, const std::string& folder) {
  auto file = std::make_shared<File>();
  file->name = name;
  file->folder = folder;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(deepest);
  const bool parsed = file->model.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  if (!parsed || !file->model.has_graph()) fail(ErrorKind::format, name, ": not an ONNX model, or cut short");
  file->opset = standard_opset(*file);
  const onnx::GraphProto& graph = file->model.graph();
  if (graph.sparse_initializer_size() > 0) fail(ErrorKind::format, name, ": sparse initialisers are not supported");
  try {
    for (const onnx::TensorProto& tensor : graph.initializer()) file->initializers[tensor.name()] = onnx::read_tensor(tensor, folder);
  } catch (const Error& error) {
    fail(error.kind(), name, ": ", error.what());
  }
  // Their bytes are in the tensors now.
  file->model.mutable_graph()->clear_initializer();
  for (const onnx::ValueInfoProto& input : graph.input()) {
    if (!file->initializers.contains(input.name())) file->inputs.push_back(port(*file, input));
  }
  for (const onnx::ValueInfoProto& output : graph.output()) file->outputs.push_back(port(*file, output));
  return file;
}

std::shared_ptr<const File> read(const std::string& path) {
  const FileInput input(path, "an ONNX model");
  if (input.size() > largest_file) input.bad("it has ", input.size(), " bytes, more than protobuf's ", largest_file);
  std::vector<std::byte> bytes(input.size());
  input.read(0, bytes);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return parse(bytes, input.name(), folder.empty() ? "." : folder);
}

/// Throws unless it is a shape that the file declares.
void check_shape(const OnnxModel& model, const OnnxPort& input, const Shape& shape) {
  bool fits = !input.has_shape || shape.rank() == static_cast<int>(input.sizes.size());
  std::string expected;
  for (std::size_t i = 0; i < input.sizes.size(); ++i) {
    const std::int64_t size = input.sizes[i];
    fits = fits && (size < 0 || size == shape[static_cast<int>(i)]);
    expected += concat(expected.empty() ? "" : ", ", size < 0 ? "any" : std::to_string(size));
  }
  require(fits, model.name(), ": input \"", printable(input.name), "\": expected [", expected, "], got ", shape);
}

Shape shape_of(const OnnxModel& model, const OnnxPort& input, const OnnxOptions& options) {
  const auto given = options.shapes.find(input.name);
  if (given != options.shapes.end()) {
    check_shape(model, input, given->second);
    return given->second;
  }
  require(input.has_shape, model.name(), ": input \"", printable(input.name), "\" has no shape in the file: give one");
  Shape declared;
  for (const std::int64_t size : input.sizes) declared.push_back(size < 0 ? 1 : size);
  return declared;
}

/// Of an input that is to be a constant.
const Tensor& checked_value(const OnnxModel& model, const OnnxPort& input, const Tensor& value) {
  require(value.defined() && value.dtype() == input.dtype, model.name(), ": input \"", printable(input.name), "\": expected a value of ",
          input.dtype, ", got ", value.defined() ? concat(value.dtype()) : "none");
  check_shape(model, input, value.shape());
  return value;
}

}  // namespace

OnnxModel::OnnxModel(const std::string& path) : file_(read(path)) {}

OnnxModel::OnnxModel(std::span<const std::byte> bytes, const std::string& name) {
  require(bytes.size() <= largest_file, name, ": more bytes than protobuf reads");
  file_ = parse(bytes, printable(name), "");
}

const std::string& OnnxModel::name() const { return file_->name; }
std::int64_t OnnxModel::opset() const { return file_->opset; }
const std::vector<OnnxPort>& OnnxModel::inputs() const { return file_->inputs; }
const std::vector<OnnxPort>& OnnxModel::outputs() const { return file_->outputs; }

std::int64_t OnnxModel::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : file_->initializers) count += onnx::is_parameter(tensor) ? tensor.elements() : 0;
  return count;
}

Values OnnxModel::add_to(const Scope& scope, const std::map<std::string, Value>& inputs) const {
  return onnx::Importer(*file_, scope).run(inputs);
}

Graph import_onnx(const OnnxModel& model, const OnnxOptions& options) {
  require(options.precision == DType::f32 || options.precision == DType::f64, "import_onnx: expected precision f32 or f64, got ",
          options.precision);
  const auto known = [&](const std::string& name) {
    const auto named = [&](const OnnxPort& input) { return input.name == name; };
    require(std::any_of(model.inputs().begin(), model.inputs().end(), named), model.name(), ": there is no input \"", printable(name), '"');
  };
  for (const auto& [name, shape] : options.shapes) known(name);
  for (const auto& [name, tensor] : options.values) known(name);
  Graph graph;
  std::map<std::string, Value> inputs;
  for (const OnnxPort& input : model.inputs()) {
    const DType dtype = input.dtype == DType::f32 ? options.precision : input.dtype;
    const auto value = options.values.find(input.name);
    inputs[input.name] = value != options.values.end() ? graph.constant(checked_value(model, input, value->second).to(dtype))
                                                       : graph.input(input.name, shape_of(model, input, options), dtype);
  }
  const Values outputs = model.add_to(Scope(graph, "", options.precision), inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) graph.output(model.outputs()[i].name, outputs[i]);
  // What depends on shapes was computed from these: for others the graph is made again.
  graph.remake_by([model, options](const auto& types) {
    OnnxOptions other = options;
    for (const auto& [name, type] : types) other.shapes[name] = type.shape;
    return import_onnx(model, other);
  });
  return graph;
}

Graph import_onnx(const std::string& path, const OnnxOptions& options) { return import_onnx(OnnxModel(path), options); }

}  // namespace frit
