// What is exported, imported again, gives what the model gives.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "frit/core/io/file.h"
#include "frit/core/random.h"
#include "frit/frit.h"
#include "frit/models/onnx/onnx_export.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/shape/resize_axis.h"
#include "models/onnx/model_builder.h"

namespace frit {
namespace {

Tensor noise(const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape);
  fill_normal(tensor, 0, 1, /*seed=*/3, 0);
  return tensor;
}

Tensor run(const Graph& graph, const std::shared_ptr<State>& state, const char* input, const Tensor& x) {
  Program program(graph::for_inference(graph), state);
  return program.run({{input, x}}).output("output").clone();
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.shape(), expected.shape());
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  double largest = 1;
  for (const double value : b) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << "element " << i;
}

/// The exported model, imported again for the input's shape, gives what the graph gives. Where FRIT_ONNX_EXPORTS names a folder, the model,
/// its input and what it is to give are left there for run_exports.py.
void expect_export(const std::string& model, const Graph& graph, const std::shared_ptr<State>& state, const Tensor& input) {
  const Graph imported = import_onnx(ModelBuilder::read_onnx(model), {.shapes = {{"input", input.shape()}}});
  const Tensor expected = run(graph, state, "input", input);
  expect_near(run(imported, std::make_shared<State>(), "input", input), expected, 2e-6);
  const char* const folder = std::getenv("FRIT_ONNX_EXPORTS");
  if (folder == nullptr) return;
  static int written = 0;
  const std::string path = concat(folder, '/', ++written);
  write_text(path + ".onnx", model);
  write_npy(path + "-input.npy", input);
  write_npy(path + "-output.npy", expected);
}

class OnnxExport : public testing::TestWithParam<std::string> {};

TEST_P(OnnxExport, ImportedAgainGivesWhatTheModelGives) {
  const Model model = make_model(GetParam(), make_model(GetParam()).small_config);
  const Graph graph = forward_graph(model, model.small_input);
  const auto state = std::make_shared<State>(Device::cpu(), 7);
  state->prepare(graph);
  const std::string bytes = to_onnx(graph, *state);
  const OnnxModel exported = ModelBuilder::read_onnx(bytes);
  EXPECT_EQ(exported.opset(), 17);
  EXPECT_EQ(exported.inputs().at(0).name, "input");
  EXPECT_EQ(exported.inputs()[0].sizes[0], -1) << "the batch is free";
  for (const std::int64_t batch : {model.small_input[0], model.small_input[0] + 2}) {
    Shape shape = model.small_input;
    shape[0] = batch;
    expect_export(bytes, forward_graph(model, shape), state, noise(shape));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OnnxExport, testing::ValuesIn(model_names()), [](const auto& name) {
  std::string plain = name.param;
  std::replace(plain.begin(), plain.end(), '-', '_');
  return plain;
});

/// A graph of operators that no native model has.
TEST(OnnxExportOf, OperatorsAreSpelledAsTheStandardHasThem) {
  Graph graph;
  const Value x = graph.input("input", {2, 4, 6, 5});
  const Value pooled = max_pool2d(x, {.kernel_size = {3, 2}, .stride = {2, 1}, .padding = {1, 1}}) +
                       avg_pool2d(x, {.kernel_size = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = false});
  Value y = mish(pooled) + hard_swish(pooled) * hard_sigmoid(pooled) - elu(pooled, 0.5) / (1 + exp(tanh(pooled)));
  y = where(less_equal(y, pooled), gelu(y, GeluForm::tanh), power(abs(y), 1.5)) + softplus(y, 2);
  y = slice(pad(y, {0, 0, 1, 0}, {0, 0, 0, 2}, 0.5), 3, 1, -1, 2);
  y = y * sum(y, {2, 3}, /*keep_dims=*/true) - min(y, 1, /*keep_dims=*/true) + max(y, {1, 3}, /*keep_dims=*/true);
  graph.output("output", matmul(permute(y, {0, 1, 3, 2}), y));
  expect_export(to_onnx(graph, State()), graph, std::make_shared<State>(), noise({2, 4, 6, 5}));
}

TEST(OnnxExportOf, IndexingIsSpelledAsTheStandardHasIt) {
  Graph graph;
  const Value x = graph.input("input", {3, 4, 6});
  const auto [values, places] = top_k(x, 3, -1, /*largest=*/false);
  Value y = cumulative_sum(values, 1, /*exclusive=*/true, /*reverse=*/true) + gather(sort(x, 2, true).values, 2, places);
  y = y + cast(cumulative_sum(cast(places, DType::i32), 2), DType::f32);
  const Value table = graph.constant(noise({6, 5})), some = graph.constant(Tensor::from<std::int64_t>({5, 0, 0}, {3}));
  y = concatenate({embedding(places, table), unsqueeze(y, 3), unsqueeze(index_select(x, 2, some), 3)}, 3);
  graph.output("output", y);
  expect_export(to_onnx(graph, State()), graph, std::make_shared<State>(), noise({3, 4, 6}));
}

/// Of any batch. The same places occur more than once.
TEST(OnnxExportOf, ValuesArePutAndTakenAlongAxes) {
  struct Case {
    Shape indices;
    std::int64_t axis, size;
    bool keep_dims;
  };
  for (const Case& c : {Case{{2, 3, 4}, 1, 5, true}, {{2, 3, 1}, 1, 2, true}, {{2, 3, 4}, -1, 4, true}, {{2, 3, 4}, 2, 6, false}}) {
    SCOPED_TRACE(concat(c.indices, " along ", c.axis));
    const auto graph = [&](std::int64_t batch) {
      Graph made;
      const Value x = made.input("input", {batch, 3, 4});
      // Which indices follows the input, so that none is a constant of the model.
      const Value part = c.indices[2] == 4 ? x : slice(x, 2, 0, 1);
      const Value indices = cast(clamp(abs(part) * 3.0, 0, static_cast<double>(c.size - 1)), DType::i64);
      const Value put = ops::put_along_axis(x, indices, c.axis, c.size, c.keep_dims);
      made.output("output", ops::take_along_axis(put, indices, c.axis, c.keep_dims));
      return made;
    };
    const std::string model = to_onnx(graph(2), State());
    for (const std::int64_t batch : {2, 5}) expect_export(model, graph(batch), std::make_shared<State>(), noise({batch, 3, 4}));
  }
}

TEST(OnnxExportOf, PaddingIsForAnyBatch) {
  for (const PaddingMode mode : {PaddingMode::zeros, PaddingMode::reflect, PaddingMode::replicate, PaddingMode::circular}) {
    SCOPED_TRACE(static_cast<int>(mode));
    const auto graph = [&](std::int64_t batch) {
      Graph made;
      made.output("output", pad(made.input("input", {batch, 3, 4, 5}), {0, 0, 2, 0}, {0, 1, 3, 4}, mode));
      return made;
    };
    const std::string model = to_onnx(graph(2), State());
    for (const std::int64_t batch : {2, 5}) expect_export(model, graph(batch), std::make_shared<State>(), noise({batch, 3, 4, 5}));
  }
}

TEST(OnnxExportOf, ResizingIsForAnyBatch) {
  const std::vector<ResizeOptions> all = {
      {.size = {7, 3}},
      {.scale_factor = {2.0}},
      {.size = {7, 3}, .mode = ResizeMode::linear},
      {.scale_factor = {1.7, 1}, .mode = ResizeMode::linear},
      {.size = {1, 9}, .mode = ResizeMode::linear, .align_corners = true},
      {.scale_factor = {1.3}, .mode = ResizeMode::cubic},
      {.size = {4, 13}, .mode = ResizeMode::cubic, .align_corners = true},
  };
  for (const ResizeOptions& options : all) {
    SCOPED_TRACE(concat(options.size, ' ', options.scale_factor.size(), ' ', static_cast<int>(options.mode)));
    Graph graph;
    graph.output("output", resize(graph.input("input", {2, 3, 4, 6}), options));
    const std::string model = to_onnx(graph, State());
    EXPECT_EQ(ModelBuilder::read_onnx(model).inputs().at(0).sizes[0], -1);
    for (const std::int64_t batch : {2, 5}) expect_export(model, graph, std::make_shared<State>(), noise({batch, 3, 4, 6}));
  }
  Graph graph;
  ops::ResizeAttributes shifted;
  shifted.add_axis(6, 4, 1, 1.25);
  graph.output("output", ops::resize_by(graph.input("input", {2, 3, 6}), shifted));
  EXPECT_EQ(message_of([&] { to_onnx(graph, State()); }), "ONNX has no spelling of a resize whose places are 1 * i + 1.25");
}

/// Opset 17 has no group norm, silu, mish or gelu; no parameters come to those of the norms.
TEST(OnnxExportOf, WhatIsSpelledInPartsIsFoundAgain) {
  Graph graph;
  const Scope scope(graph);
  const Value x = graph.input("input", {2, 4, 6, 5});
  const Value y = mish(instance_norm(silu(nn::group_norm(scope / "norm", x, {.num_groups = 2}))));
  graph.output("output", gelu(gelu(y), GeluForm::tanh));
  const auto state = std::make_shared<State>();
  state->prepare(graph);
  const Graph imported = import_onnx(ModelBuilder::read_onnx(to_onnx(graph, *state)), {.shapes = {{"input", {2, 4, 6, 5}}}});
  EXPECT_EQ(imported.all(graph::NodeKind::variable).size(), 2u);
  std::vector<std::string> names;
  const Graph fused = graph::apply(graph::forward_pipeline(), imported);
  for (const graph::Node* node : fused.all(graph::NodeKind::operation)) {
    if (!node->op->view) names.push_back(node->op->name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"group_norm", "silu", "instance_norm", "mish", "gelu", "gelu"})) << graph::to_text(fused);
}

TEST(OnnxExportOf, NamesOfTheGraphAreNotMadeAgain) {
  Graph graph;
  const Value x = graph.input("result_1", {2, 3}), y = graph.input("constant_2", {2, 3});
  graph.output("result_3", relu(x) * 3.0 + y);
  const OnnxModel exported = ModelBuilder::read_onnx(to_onnx(graph, State()));
  Program program(import_onnx(exported, {.shapes = {{"result_1", {2, 3}}, {"constant_2", {2, 3}}}}), std::make_shared<State>());
  const graph::Executable& results = program.run({{"result_1", Tensor::full({2, 3}, 2)}, {"constant_2", Tensor::full({2, 3}, 5)}});
  EXPECT_EQ(results.output("result_3").to_vector<float>(), std::vector<float>(6, 11));
  graph.output("constant_2", y + 1.0);
  EXPECT_EQ(message_of([&] { to_onnx(graph, State()); }),
            "two of the graph's inputs, variables and outputs are called \"constant_2\": ONNX needs a name for each");
}

TEST(OnnxExportOf, NamesAllOperatorsThatOnnxLacks) {
  Graph graph;
  const Value x = graph.input("input", {2, 3});
  const Value mean = mean_squared_error(x, graph.input("target", {2, 3}));
  graph.output("output", cross_entropy(x, graph.input("class", {2}, DType::i64)) + mean);
  EXPECT_EQ(message_of([&] { to_onnx(graph, State()); }),
            "there is no ONNX spelling here of what the graph has: cross_entropy mean_squared_error");
}

}  // namespace
}  // namespace frit
