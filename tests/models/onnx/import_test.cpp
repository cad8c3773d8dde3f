#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "frit/autograd/train_step.h"
#include "frit/ops/loss/loss.h"
#include "models/onnx/model_builder.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

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
  return static_cast<std::size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                                [](const graph::Node& node) { return node.op != nullptr && node.op->name == "resize"; }));
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
  EXPECT_NE(message_of([&] {
              import_resize({1, 1, 2, 2}, {1, 1, 0, 4}, "cubic", "half_pixel");
            }).find("an axis of 2 elements to 0"),
            std::string::npos);
}

TEST(OnnxImport, ValuesMustFitWhatTheFileDeclares) {
  ModelBuilder builder;
  builder.input("x", {2, 2}).input("shape", {2}, onnx::TensorProto::INT64).output("y");
  builder.node("Reshape", {"x", "shape"}, {"y"});
  const auto import_with = [&](const Tensor& shape) {
    return message_of([&] { import_onnx(builder.model(), {.values = {{"shape", shape}}}); });
  };
  EXPECT_EQ(import_with(Tensor::from({std::int64_t{4}, std::int64_t{1}}, {2})), "no error");
  EXPECT_EQ(import_with(Tensor::from({4.0f, 1.0f}, {2})), "test.onnx: input \"shape\": expected a value of i64, got f32");
  EXPECT_EQ(import_with(Tensor()), "test.onnx: input \"shape\": expected a value of i64, got none");
  EXPECT_EQ(import_with(Tensor::from({std::int64_t{4}}, {1})), "test.onnx: input \"shape\": expected [2], got 1");
}

/// A few runs are slices, which are read where they lie; else one operation takes them all.
TEST(OnnxImport, TakesIndicesThatTheFileHas) {
  const auto gathered = [](const std::vector<std::int64_t>& indices) {
    ModelBuilder builder;
    builder.input("x", {12}).output("y").integers("i", {static_cast<std::int64_t>(indices.size())}, indices);
    builder.node("Gather", {"x", "i"}, {"y"});
    return run_graph(import_onnx(builder.model()), counting({12})).to_vector<float>();
  };
  EXPECT_EQ(gathered({2, 4, 6, -1}), (Floats{2, 4, 6, 11}));
  EXPECT_EQ(gathered({11, 3, 7, 0, 9, 9, 9, 2, 8, 1, -2, 6, 4, 0}), (Floats{11, 3, 7, 0, 9, 9, 9, 2, 8, 1, 10, 6, 4, 0}));
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

/// What PyTorch makes of a group norm below opset 21; `scale` is the instance norm's.
ModelBuilder group_norm_model(const std::string& scale, std::vector<float> ones = {1, 1}) {
  ModelBuilder builder;
  builder.input("x", {2, 4, 3, 5}).output("y");
  builder.integers("groups", {3}, {0, 2, -1});
  builder.weight(scale, {static_cast<std::int64_t>(ones.size())}, ones).weight("zeros", {2}, {0, 0});
  builder.weight("onnx::Mul_7", {4, 1, 1}, {1, 2, 3, 4}).weight("onnx::Add_8", {4, 1, 1}, {0, -1, 0, 1});
  builder.node("Reshape", {"x", "groups"}, {"grouped"});
  builder.node("InstanceNormalization", {"grouped", scale, "zeros"}, {"normal"}, "norm");
  builder.node("Shape", {"x"}, {"shape"});
  builder.node("Reshape", {"normal", "shape"}, {"whole"});
  builder.node("Mul", {"whole", "onnx::Mul_7"}, {"scaled"});
  builder.node("Add", {"scaled", "onnx::Add_8"}, {"y"});
  return builder;
}

std::size_t count(const Graph& graph, std::string_view op) {
  std::size_t found = 0;
  for (const graph::Node* node : graph.all(graph::NodeKind::operation)) found += node->op->name == op;
  return found;
}

TEST(OnnxImport, AGroupNormInPartsBecomesOne) {
  const Graph graph = import_onnx(group_norm_model("ones").model());
  ASSERT_EQ(graph.all(graph::NodeKind::variable).size(), 2u) << "ones and zeros of an exporter are no parameters";
  EXPECT_TRUE(graph.find(graph::NodeKind::variable, "onnx::Mul_7")->trainable);
  const Graph fused = graph::apply(graph::forward_pipeline(), graph);
  const graph::Node& norm = fused.producer(fused.outputs()[0].value);
  EXPECT_EQ(norm.op->name, "group_norm") << graph::to_text(fused);
  EXPECT_EQ(norm.inputs.size(), 3u);
  EXPECT_EQ(norm.attributes.text(), "num_groups=2 eps=1e-05");
  // The same as its parts: each group of two channels has mean 0 and variance 1 before the scale.
  const Tensor x = counting({2, 4, 3, 5});
  const std::vector<float> y = run_graph(graph, x).to_vector<float>();
  const double deviation = std::sqrt((30.0 * 30.0 - 1) / 12 + 1e-5);
  const double scale[] = {1, 2, 3, 4}, shift[] = {0, -1, 0, 1};
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t channel = i / 15 % 4;
    EXPECT_NEAR(y[i], (static_cast<double>(i % 30) - 14.5) / deviation * scale[channel] + shift[channel], 1e-5) << i;
  }
}

TEST(OnnxImport, AnInstanceNormKeepsAScaleThatMayBeTrained) {
  for (const char* name : {"norm.weight", "ones"}) {
    const bool trained = name == std::string("norm.weight");
    const Graph graph = import_onnx(group_norm_model(name, trained ? Floats{1, 1} : Floats{1, 1.5f}).model());
    ASSERT_NE(graph.find(graph::NodeKind::variable, name), nullptr) << name;
    EXPECT_EQ(count(graph::apply(graph::forward_pipeline(), graph), "instance_norm"), 1u);
  }
  EXPECT_EQ(message_of([] {
              import_onnx(group_norm_model("ones", {1, 1, 1}).model());
            }),
            "test.onnx: not supported:\n"
            "  node \"norm\" (InstanceNormalization, opset 17): instance_norm: weight must have shape 2, got 3 (input 2x2x30)");
}

/// Training mode, and the mask that PyTorch's exporter names and nobody reads.
ModelBuilder dropout_model(bool training) {
  ModelBuilder builder;
  builder.input("x", {64, 64}).output("y");
  builder.initializer("ratio", {}, onnx::TensorProto::FLOAT).add_float_data(0.25f);
  builder.initializer("training", {}, onnx::TensorProto::BOOL).add_int32_data(training);
  builder.node("Dropout", {"x", "ratio", "training"}, {"y", "mask"}, "drop");
  return builder;
}

TEST(OnnxImport, DropoutInTrainingModeDropsInTrainingAlone) {
  const Graph graph = import_onnx(dropout_model(true).model());
  EXPECT_EQ(count(graph, "dropout"), 1u);
  EXPECT_FALSE(graph.find(graph::NodeKind::variable, "y.counter")->trainable);
  const Tensor ones = Tensor::full({64, 64}, 1);
  Program training(graph, std::make_shared<State>());
  const Floats first = training.run({{"x", ones}}).output("y").to_vector<float>();
  const Floats second = training.run({{"x", ones}}).output("y").to_vector<float>();
  EXPECT_NE(first, second) << "a new mask every time";
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 0.0f)), 1024, 4 * std::sqrt(4096 * 0.25 * 0.75));
  for (const float value : first) EXPECT_TRUE(value == 0 || value == 1 / 0.75f) << value;
  EXPECT_EQ(run_graph(graph, ones).to_vector<float>(), ones.to_vector<float>());
  EXPECT_EQ(count(import_onnx(dropout_model(false).model()), "dropout"), 0u);
}

/// As torchvision's networks have it when they are exported for training: whole rows are dropped.
ModelBuilder stochastic_depth_model(onnx::TensorProto::DataType kept = onnx::TensorProto::FLOAT) {
  ModelBuilder builder;
  builder.input("x", {400, 3}).output("y");
  builder.weight("noise", {400, 1}, Floats(400, 0));
  builder.initializer("survival", {}, onnx::TensorProto::FLOAT).add_float_data(0.75f);
  builder.node("RandomUniformLike", {"noise"}, {"uniform"}, "draw");
  builder.node("Less", {"uniform", "survival"}, {"less"});
  ModelBuilder::set(builder.node("Cast", {"less"}, {"kept"}), "to", kept);
  builder.node("Div", {"kept", "survival"}, {"factor"});
  builder.node("Mul", {"x", "factor"}, {"y"});
  return builder;
}

TEST(OnnxImport, StochasticDepthDropsRowsInTrainingAlone) {
  const Graph graph = import_onnx(stochastic_depth_model().model());
  for (const graph::Node* variable : graph.all(graph::NodeKind::variable)) EXPECT_FALSE(variable->trainable) << variable->name;
  const Tensor ones = Tensor::full({400, 3}, 1);
  Program training(graph, std::make_shared<State>());
  const Floats first = training.run({{"x", ones}}).output("y").to_vector<float>();
  EXPECT_NE(first, training.run({{"x", ones}}).output("y").to_vector<float>()) << "other rows every time";
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 0.0f)) / 3, 100, 4 * std::sqrt(400 * 0.25 * 0.75));
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i] == 0 || std::abs(first[i] - 1 / 0.75f) < 1e-6f) << first[i];
    EXPECT_EQ(first[i], first[i / 3 * 3]);
  }
  EXPECT_EQ(run_graph(graph, ones).to_vector<float>(), ones.to_vector<float>());
}

TEST(OnnxImport, RandomNumbersAreReadByOneComparison) {
  ModelBuilder builder = stochastic_depth_model();
  builder.node("Less", {"uniform", "survival"}, {"again"}, "second");
  builder.node("Neg", {"uniform"}, {"negative"}, "minus");
  builder.output("again").output("negative").output("uniform");
  const std::string why = "of random numbers may be asked once, by Less with one number and a Cast to numbers, which are below it";
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }),
            concat("test.onnx: not supported:\n  node \"second\" (Less, opset 17): ", why, "\n  node \"minus\" (Neg, opset 17): ", why,
                   "\n  output \"uniform\": it is random numbers"));
  for (const auto type : {onnx::TensorProto::BOOL, onnx::TensorProto::INT64}) {
    const std::string message = message_of([&] { import_onnx(stochastic_depth_model(type).model()); });
    EXPECT_NE(message.find(concat("(Cast, opset 17): ", why)), std::string::npos) << message;
  }
}

TEST(OnnxImport, ChancesOfBernoulliAreTakenInTrainingAlone) {
  ModelBuilder builder;
  builder.input("x", {64, 64}).output("y");
  builder.weight("chances", {64, 64}, Floats(4096, 0.25f)).weight("others", {2}, {0.25f, 0.5f});
  builder.node("Bernoulli", {"chances"}, {"kept"});
  builder.node("Mul", {"x", "kept"}, {"y"});
  const Graph graph = import_onnx(builder.model());
  const Tensor ones = Tensor::full({64, 64}, 1);
  Program training(graph, std::make_shared<State>());
  const Floats first = training.run({{"x", ones}}).output("y").to_vector<float>();
  EXPECT_NE(first, training.run({{"x", ones}}).output("y").to_vector<float>()) << "others every time";
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 1.0f)), 1024, 4 * std::sqrt(4096 * 0.25 * 0.75));
  EXPECT_EQ(static_cast<std::size_t>(std::count(first.begin(), first.end(), 0.0f) + std::count(first.begin(), first.end(), 1.0f)),
            first.size());
  EXPECT_EQ(run_graph(graph, ones).to_vector<float>(), Floats(4096, 0.25f));
  builder.node("Bernoulli", {"others"}, {"z"}, "two");
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }),
            "test.onnx: not supported:\n  node \"two\" (Bernoulli, opset 17): its probabilities are not one number from 0 to 1");
}

TEST(OnnxImport, DropoutsMaskIsNoResultInTraining) {
  ModelBuilder builder = dropout_model(true);
  builder.output("mask");
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }),
            "test.onnx: not supported:\n  node \"drop\" (Dropout, opset 17): its output 1 is not supported");
}

/// Dropout of what is known when the model is imported is random nevertheless.
TEST(OnnxImport, DropoutOfAConstantIsNotComputedAtImport) {
  ModelBuilder builder = dropout_model(true);
  builder.integers("shape", {2}, {64, 64});
  builder.node("ConstantOfShape", {"shape"}, {"zeros"});
  builder.node("Cos", {"zeros"}, {"ones"});
  builder.node("Dropout", {"ones", "ratio", "training"}, {"z"});
  builder.output("z");
  EXPECT_EQ(count(import_onnx(builder.model()), "dropout"), 2u);
}

TEST(OnnxImport, AGraphMayBeAddedTo) {
  Graph graph = import_onnx(linear_model().model(), {.shapes = {{"x", {2, 2}}}});
  const Value error = mean_squared_error(graph.output_value("y"), graph.input("target", {2, 3}));
  TrainStep step(error, Sgd{.learning_rate = 0.01}, Device::cpu());
  const Bindings batch = {{"x", counting({2, 2})}, {"target", counting({2, 3})}};
  const double first = step(batch);
  EXPECT_NEAR(first, (4.5 * 4.5 + 4 * 4 + 3.5 * 3.5 + 11.5 * 11.5 + 15 * 15 + 18.5 * 18.5) / 6, 1e-4);
  EXPECT_LT(step(batch), first);
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
