#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/onnx/model_builder.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

Tensor counting(const Shape& shape) {
  Floats values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(values, shape);
}

/// y = x w + b, with w (2, 3).
ModelBuilder linear_model() {
  ModelBuilder builder;
  builder.input("x", {-1, 2}).output("y", {-1, 3});
  builder.weight("w", {2, 3}, {1, 2, 3, 4, 5, 6}).weight("b", {3}, {0.5f, 0, -0.5f});
  builder.node("Gemm", {"x", "w", "b"}, {"y"});
  return builder;
}

TEST(OnnxImport, FloatingInitialisersBecomeParametersUnderTheirNames) {
  const Graph graph = import_onnx(linear_model().model(), {.shapes = {{"x", {2, 2}}}});
  ASSERT_EQ(graph.all(graph::NodeKind::variable).size(), 2u);
  const graph::Node* weight = graph.find(graph::NodeKind::variable, "w");
  ASSERT_NE(weight, nullptr);
  EXPECT_TRUE(weight->trainable);
  EXPECT_EQ(run_graph(graph, counting({2, 2})).to_vector<float>(), (Floats{4.5f, 5, 5.5f, 14.5f, 19, 23.5f}));
}

TEST(OnnxImport, PrecisionIsThatOfFloat32) {
  const Graph graph = import_onnx(linear_model().model(), {.precision = DType::f64});
  EXPECT_EQ(graph.type(graph.find(graph::NodeKind::variable, "w")->outputs[0]).dtype, DType::f64);
  EXPECT_EQ(run_graph(graph, Tensor::from({1.0, 1.0}, {1, 2})).to_vector<double>(), (std::vector<double>{5.5, 7, 8.5}));
}

TEST(OnnxImport, AnInitialiserOfSeveralNodesIsOneParameter) {
  ModelBuilder builder;
  builder.input("x", {1, 2}).output("y").weight("w", {2, 2}, {1, 1, 0, 1});
  builder.node("MatMul", {"x", "w"}, {"hidden"});
  builder.node("MatMul", {"hidden", "w"}, {"y"});
  const Graph graph = import_onnx(builder.model());
  EXPECT_EQ(graph.all(graph::NodeKind::variable).size(), 1u);
  EXPECT_EQ(run_graph(graph, Tensor::from({1.0f, 1.0f}, {1, 2})).to_vector<float>(), (Floats{1, 3}));
}

TEST(OnnxImport, RunningStatisticsAreBuffers) {
  ModelBuilder builder;
  builder.input("x", {-1, 2}).output("y");
  builder.weight("scale", {2}, {2, 1}).weight("bias", {2}, {0, 1}).weight("mean", {2}, {1, 0}).weight("variance", {2}, {4, 1});
  builder.node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"y"}).add_attribute()->set_name("epsilon");
  builder.proto.mutable_graph()->mutable_node(0)->mutable_attribute(0)->set_type(onnx::AttributeProto::FLOAT);
  const Graph graph = import_onnx(builder.model(), {.shapes = {{"x", {2, 2}}}});
  EXPECT_FALSE(graph.find(graph::NodeKind::variable, "mean")->trainable);
  EXPECT_FALSE(graph.find(graph::NodeKind::variable, "variance")->trainable);
  EXPECT_TRUE(graph.find(graph::NodeKind::variable, "scale")->trainable);
  EXPECT_EQ(run_graph(graph, counting({2, 2})).to_vector<float>(), (Floats{-1, 2, 1, 4}));
}

/// Flattening as PyTorch wrote it: reshape(x, [shape(x)[0], -1]).
ModelBuilder reshaping_model() {
  ModelBuilder builder;
  builder.input("x", {-1, 2, -1}).output("y");
  builder.integers("zero", {}, {0}).integers("axes", {1}, {0}).integers("rest", {1}, {-1});
  builder.node("Shape", {"x"}, {"shape"});
  builder.node("Gather", {"shape", "zero"}, {"batch"});
  builder.node("Unsqueeze", {"batch", "axes"}, {"first"});
  ModelBuilder::set(builder.node("Concat", {"first", "rest"}, {"sizes"}), "axis", std::int64_t{0});
  builder.node("Reshape", {"x", "sizes"}, {"y"});
  return builder;
}

TEST(OnnxImport, ShapeArithmeticIsComputedForTheShapesThatAreGiven) {
  const OnnxModel model = reshaping_model().model();
  for (const Shape& shape : {Shape{1, 2, 3}, Shape{4, 2, 5}}) {
    const Graph graph = import_onnx(model, {.shapes = {{"x", shape}}});
    EXPECT_EQ(graph.type(graph.outputs()[0].value).shape, (Shape{shape[0], 2 * shape[2]}));
    EXPECT_EQ(run_graph(graph, counting(shape)).to_vector<float>(), counting(shape).to_vector<float>());
    const auto operations = graph.all(graph::NodeKind::operation);
    EXPECT_EQ(operations.size(), 1u) << graph::to_text(graph);
  }
}

std::size_t resizes(const Graph& graph) {
  return static_cast<std::size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const graph::Node& node) {
    return node.op != nullptr && node.op->name == "resize";
  }));
}

TEST(OnnxImport, ResizesAnyAxes) {
  const auto import_resize = [](const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to, const std::string& mode,
                                const std::string& coordinates) {
    ModelBuilder builder;
    builder.input("x", from).output("y").integers("sizes", {static_cast<std::int64_t>(to.size())}, to);
    onnx::NodeProto& node = builder.node("Resize", {"x", "", "", "sizes"}, {"y"});
    ModelBuilder::set(node, "mode", mode);
    ModelBuilder::set(node, "coordinate_transformation_mode", coordinates);
    return import_onnx(builder.model());
  };
  const Tensor x = Tensor::from({1.0f, 3.0f, 5.0f, 9.0f}, {2, 2});
  const Graph matrix = import_resize({2, 2}, {3, 3}, "linear", "align_corners");
  EXPECT_EQ(run_graph(matrix, x).to_vector<float>(), (Floats{1, 2, 3, 3, 4.5f, 6, 5, 7, 9}));
  EXPECT_EQ(resizes(matrix), 2u) << "axis by axis, as they are no image's";
  const Graph channels = import_resize({1, 2, 2}, {1, 4, 2}, "nearest", "half_pixel");
  EXPECT_EQ(run_graph(channels, x.reshape({1, 2, 2})).to_vector<float>(), (Floats{1, 3, 1, 3, 5, 9, 5, 9}));
  const Graph image = import_resize({1, 1, 2, 2}, {1, 1, 1, 4}, "linear", "asymmetric");
  EXPECT_EQ(run_graph(image, x.reshape({1, 1, 2, 2})).to_vector<float>(), (Floats{1, 2, 3, 3}));
  EXPECT_EQ(resizes(image), 1u);
  EXPECT_NE(message_of([&] { import_resize({1, 1, 2, 2}, {1, 1, 0, 4}, "cubic", "half_pixel"); }).find("an axis of 2 elements to 0"),
            std::string::npos);
}

TEST(OnnxImport, ShapesMustFitWhatTheFileDeclares) {
  const OnnxModel model = reshaping_model().model();
  EXPECT_EQ(message_of([&] {
              import_onnx(model, {.shapes = {{"x", {1, 3, 3}}}});
            }),
            "test.onnx: input \"x\": expected [any, 2, any], got 1x3x3");
  EXPECT_EQ(message_of([&] { import_onnx(model, {.shapes = {{"image", {1, 3, 3}}}}); }), "test.onnx: there is no input \"image\"");
  EXPECT_EQ(message_of([&] { import_onnx(model, {.precision = DType::f16}); }), "import_onnx: expected precision f32 or f64, got f16");
}

TEST(OnnxImport, NamesAllThatIsNotSupportedAtOnce) {
  ModelBuilder builder(11);
  builder.input("x", {1, 1, 4, 4}).output("y").output("indices");
  builder.node("NonMaxSuppression", {"x"}, {"boxes"}, "nms");
  builder.node("Relu", {"boxes"}, {"after"}, "follows");
  ModelBuilder::set(builder.node("Pad", {"x", "missing"}, {"padded"}, "pad_1"), "mode", "reflect");
  ModelBuilder::set(builder.node("MaxPool", {"x"}, {"y", "indices"}), "kernel_shape", std::vector<std::int64_t>{2, 2});
  builder.node("Fused", {"x"}, {"z"}, "custom").set_domain("com.example");
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }),
            "test.onnx: not supported:\n"
            "  node \"nms\" (NonMaxSuppression, opset 11): there is no such operator here\n"
            "  node \"pad_1\" (Pad, opset 11): no node before it gives its input \"missing\"\n"
            "  node of \"y\" (MaxPool, opset 11): its output 1 is not supported\n"
            "  node \"custom\" (com.example.Fused): there is no such operator here");
}

TEST(OnnxImport, WhatDependsOnARunCannotBeAShape) {
  ModelBuilder builder;
  builder.input("x", {4}).input("sizes", {1}, onnx::TensorProto::INT64).output("y");
  builder.node("Reshape", {"x", "sizes"}, {"y"}, "reshape");
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }),
            "test.onnx: not supported:\n"
            "  node \"reshape\" (Reshape, opset 17): input \"sizes\" must be known when the model is imported: it is computed from what a "
            "run is given");
  const Graph graph = import_onnx(builder.model(), {.values = {{"sizes", Tensor::from(std::vector<std::int64_t>{4}, {1})}}});
  EXPECT_EQ(run_graph(graph, counting({4})).to_vector<float>(), (Floats{0, 1, 2, 3}));
}

TEST(OnnxImport, AShapeThatDoesNotFitIsTheNodesFault) {
  ModelBuilder builder = linear_model();
  builder.proto.mutable_graph()->mutable_node(0)->set_name("fc");
  builder.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_value(5);
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }),
            "test.onnx: not supported:\n  node \"fc\" (Gemm, opset 17): matmul: a has 5 columns, b has 2 rows (a 1x5, b 2x3)");
}

TEST(OnnxImport, ParametersHaveGradientsAndNamesBelowAScope) {
  Graph graph;
  const OnnxModel model = linear_model().model();
  const Values outputs = model.add_to(Scope(graph, "branch"), {{"x", graph.input("x", {2, 2})}});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].shape(), (Shape{2, 3}));
  EXPECT_NE(graph.find(graph::NodeKind::variable, "branch.w"), nullptr);
  EXPECT_EQ(message_of([&] { model.add_to(Scope(graph, "other"), {}); }), "test.onnx: input \"x\" was not given");
  EXPECT_EQ(model.parameter_count(), 9);
  EXPECT_EQ(model.opset(), 17);
}

}  // namespace
}  // namespace frit
