#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/models/onnx/onnx_model.h"
#include "frit/models/onnx/schema.h"

namespace frit {

/// ONNX models as the tests need them.
class ModelBuilder {
 public:
  using Names = std::vector<std::string>;

  explicit ModelBuilder(std::int64_t opset = 17) {
    proto.set_ir_version(8);
    proto.add_opset_import()->set_version(opset);
    proto.mutable_graph()->set_name("test");
  }

  /// Sizes of -1 are named, as dynamic axes are.
  ModelBuilder& input(const std::string& name, const std::vector<std::int64_t>& sizes, std::int32_t type = onnx::TensorProto::FLOAT) {
    declare(*proto.mutable_graph()->add_input(), name, sizes, type);
    return *this;
  }
  ModelBuilder& output(const std::string& name, const std::vector<std::int64_t>& sizes = {}) {
    declare(*proto.mutable_graph()->add_output(), name, sizes, onnx::TensorProto::FLOAT);
    return *this;
  }

  ModelBuilder& weight(const std::string& name, const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
    onnx::TensorProto& tensor = initializer(name, dims, onnx::TensorProto::FLOAT);
    tensor.set_raw_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    return *this;
  }
  ModelBuilder& integers(const std::string& name, const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& values) {
    onnx::TensorProto& tensor = initializer(name, dims, onnx::TensorProto::INT64);
    for (const std::int64_t value : values) tensor.add_int64_data(value);
    return *this;
  }
  onnx::TensorProto& initializer(const std::string& name, const std::vector<std::int64_t>& dims, std::int32_t type) {
    onnx::TensorProto& tensor = *proto.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const std::int64_t size : dims) tensor.add_dims(size);
    return tensor;
  }

  onnx::NodeProto& node(const std::string& op, const Names& inputs, const Names& outputs, const std::string& name = {}) {
    onnx::NodeProto& node = *proto.mutable_graph()->add_node();
    node.set_op_type(op);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    for (const std::string& output : outputs) node.add_output(output);
    return node;
  }
  static void set(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }
  static void set(onnx::NodeProto& node, const std::string& name, const std::vector<std::int64_t>& values) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INTS);
    for (const std::int64_t value : values) attribute.add_ints(value);
  }
  static void set(onnx::NodeProto& node, const std::string& name, const std::string& value) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::STRING);
    attribute.set_s(value);
  }

  std::string bytes() const { return proto.SerializeAsString(); }
  OnnxModel model() const { return read_onnx(bytes()); }
  static OnnxModel read_onnx(const std::string& bytes) { return OnnxModel(std::as_bytes(std::span(bytes)), "test.onnx"); }

  onnx::ModelProto proto;

 private:
  static void declare(onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::int64_t>& sizes, std::int32_t type) {
    info.set_name(name);
    onnx::TypeProto_Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    for (const std::int64_t size : sizes) {
      auto& dimension = *tensor.mutable_shape()->add_dim();
      size < 0 ? dimension.set_dim_param("n") : dimension.set_dim_value(size);
    }
  }
};

/// 0, 1, 2, ...
inline Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(values, shape);
}

/// What the graph gives at inference for "x", as its output "y".
inline Tensor run_graph(const Graph& graph, const Tensor& x) {
  Program program(graph::for_inference(graph), std::make_shared<State>());
  return program.run({{"x", x}}).output("y").clone();
}

/// The message of the error that a call throws.
template <class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace frit
