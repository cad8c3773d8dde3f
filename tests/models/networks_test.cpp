// The networks against torchvision's, on golden files: outputs at inference and in training, and gradients, with parameters that a formula
// gives (see tests/golden/make_networks.py). And without files: what their parameters are, and that they learn.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "frit/autograd/gradient.h"
#include "frit/autograd/train_step.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/numerics.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/models/model.h"
#include "frit/models/networks/unet2d.h"
#include "frit/ops/loss/loss.h"
#include "models/formula.h"

namespace frit {
namespace {

using formula::initial;
using formula::numbers;

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

class Network : public testing::TestWithParam<std::string> {
 protected:
  Network()
      : file_(
            read_safetensors((std::filesystem::path(FRIT_SOURCE_DIR) / "tests/golden/networks" / (GetParam() + ".safetensors")).string())) {
  }

  /// A graph in this dtype whose parameters have the formula's values.
  Program program(DType dtype, Device device, bool inference, Program::Extend extend = {}) const {
    Graph graph;
    const Model model = make_model(file_.metadata().at("model"), file_.metadata().at("config"));
    graph.output("output", model.add_to(Scope(graph, "", dtype), file_.at("input").shape()).at("output"));
    if (inference) graph = graph::for_inference(graph);
    const auto state = std::make_shared<State>(device);
    state->prepare(graph);
    for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
      state->set(node->name, initial(node->name, graph.type(node->outputs[0]).shape).to(dtype));
    }
    return {std::move(graph), state, std::move(extend)};
  }

  /// The image, and the time where the model takes one.
  Bindings inputs(DType dtype) const {
    Bindings result = {{"input", file_.at("input").to(dtype)}};
    if (file_.find("time")) result["time"] = file_.at("time").to(dtype);
    return result;
  }

  void expect_near(const Tensor& found, const std::string& name, double tolerance) const {
    const std::vector<double> a = found.to(Device::cpu()).to_vector<double>(), b = file_.at(name).to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest(b)) << name << ' ' << i;
  }

  /// Those of training in float64 alone: batch norms of the few values of a small image magnify rounding.
  void expect_golden_outputs(DType dtype, Device device, double tolerance) const {
    expect_near(program(dtype, device, /*inference=*/true).run(inputs(dtype)).output("output"), "inference", tolerance);
    if (dtype != DType::f64) return;
    expect_near(program(dtype, device, /*inference=*/false).run(inputs(dtype)).output("output"), "training", tolerance);
  }

  /// The sum of each parameter's gradient times the formula's numbers.
  void expect_golden_gradients(DType dtype, Device device, double tolerance) const {
    std::vector<std::string> names;
    const auto extend = [&names, dtype](Graph& graph) {
      Values parameters;
      names.clear();
      for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
        if (node->trainable) names.push_back(node->name);
      }
      std::sort(names.begin(), names.end());
      for (const std::string& name : names) parameters.push_back(graph.value(graph.find(graph::NodeKind::variable, name)->outputs[0]));
      const Value output = graph.output_value("output"), seed = graph.constant(numbers("cotangent", output.shape()).to(dtype));
      const Values gradients = gradient(std::span(&output, 1), std::span(&seed, 1), parameters);
      for (std::size_t i = 0; i < names.size(); ++i) graph.output("grad." + names[i], gradients[i]);
    };
    Program training = program(dtype, device, /*inference=*/false, extend);
    const graph::Executable& executable = training.run(inputs(dtype));
    const std::vector<double> expected = file_.at("gradients").to_vector<double>();
    ASSERT_EQ(names.size(), expected.size());
    std::vector<double> sums(names.size()), sizes(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Tensor found = executable.output("grad." + names[i]).to(Device::cpu());
      const std::vector<double> g = found.to_vector<double>(), v = numbers("gradient of " + names[i], found.shape()).to_vector<double>();
      for (std::size_t k = 0; k < g.size(); ++k) sums[i] += g[k] * v[k], sizes[i] += std::abs(g[k] * v[k]);
    }
    // A gradient that is 0, as of a bias before a batch norm, is what is left of rounding numbers of the others' size.
    const double rounding = std::numeric_limits<double>::epsilon() * largest(sizes);
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_NEAR(sums[i], expected[i], std::max(tolerance * std::max(sizes[i], 1e-3), rounding)) << names[i];
    }
  }

  TensorFile file_;
};

TEST_P(Network, GivesTorchvisionsOutputsInFloat64) { expect_golden_outputs(DType::f64, Device::cpu(), 1e-10); }

TEST_P(Network, GivesTorchvisionsOutputsInFloat32) { expect_golden_outputs(DType::f32, Device::cpu(), 2e-5); }

TEST_P(Network, GivesTorchvisionsGradientsInFloat64) { expect_golden_gradients(DType::f64, Device::cpu(), 1e-9); }

TEST_P(Network, CudaGivesTorchvisionsOutputsAndGradients) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu{DeviceKind::cuda, 0};
  set_numerics({.tf32 = false, .deterministic = true});
  expect_golden_outputs(DType::f64, gpu, 1e-10);
  expect_golden_outputs(DType::f32, gpu, 2e-5);
  expect_golden_gradients(DType::f64, gpu, 1e-9);
  set_numerics({});
}

INSTANTIATE_TEST_SUITE_P(All, Network, testing::Values("resnet18", "resnet50", "mobilenet_v2", "convnext_tiny", "unet2d", "unet3d"),
                         [](const testing::TestParamInfo<std::string>& tested) { return tested.param; });

struct Size {
  const char* model;
  const char* config;
  std::int64_t parameters;  ///< numbers that are trained
  std::size_t tensors;      ///< of these
  const char* last;         ///< parameter
  Shape last_shape;
};

class NetworkSize : public testing::TestWithParam<Size> {};

TEST_P(NetworkSize, IsThatOfThePyTorchNetwork) {
  const Model model = make_model(GetParam().model, GetParam().config);
  Graph graph;
  model.add_to(Scope(graph), model.ample_input());
  std::int64_t parameters = 0;
  std::size_t tensors = 0;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    if (!node->trainable) continue;
    parameters += graph.type(node->outputs[0]).elements();
    ++tensors;
  }
  EXPECT_EQ(parameters, GetParam().parameters);
  EXPECT_EQ(tensors, GetParam().tensors);
  const graph::Node* const last = graph.find(graph::NodeKind::variable, GetParam().last);
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(graph.type(last->outputs[0]).shape, GetParam().last_shape);
}

INSTANTIATE_TEST_SUITE_P(
    All, NetworkSize,
    testing::Values(Size{"resnet", "{}", 25'557'032, 161, "fc.weight", {1000, 2048}},
                    Size{"mobilenet_v2", "{}", 3'504'872, 158, "classifier.1.weight", {1000, 1280}},
                    Size{"mobilenet_v2", R"({"width": 0.5})", 1'968'680, 158, "features.17.conv.2.weight", {160, 480, 1, 1}},
                    Size{"convnext_tiny", "{}", 28'589'128, 182, "classifier.2.weight", {1000, 768}},
                    Size{"convnext_tiny", R"({"blocks": [3, 3, 27, 3]})", 50'223'688, 344, "features.5.26.layer_scale", {384, 1, 1}},
                    Size{"unet2d", "{}", 14'406'531, 220, "up.0.blocks.2.skip.weight", {64, 128, 1, 1}}),
    [](const testing::TestParamInfo<Size>& tested) { return concat(tested.param.model, tested.index); });

class SmallNetwork : public testing::TestWithParam<const char*> {};

TEST_P(SmallNetwork, LearnsABatchByHeart) {
  const Model model = make_model(GetParam(), make_model(GetParam()).small_config);
  Graph graph;
  const Value output = model.add_to(Scope(graph), model.small_input).at("output");
  const bool classes = model.has_classes();
  const Tensor image = numbers("input", model.small_input).to(DType::f32);
  const Tensor target = classes ? Tensor::zeros(model.target_shape(model.learnt()[0], output.shape()), DType::i64)
                                : numbers("target", output.shape()).to(DType::f32);
  const Value wanted = graph.input("target", target.shape(), target.dtype());
  TrainStep step(classes ? cross_entropy(output, wanted) : mean_squared_error(output, wanted), Adam{.learning_rate = 0.01}, Device::cpu());
  const double before = step({{"input", image}, {"target", target}});
  for (int i = 0; i < 30; ++i) step({{"input", image}, {"target", target}});
  EXPECT_LT(step({{"input", image}, {"target", target}}), 0.5 * before);
}

INSTANTIATE_TEST_SUITE_P(All, SmallNetwork, testing::Values("resnet", "mobilenet_v2", "convnext_tiny", "unet2d", "unet3d"));

/// One program for all sizes of the batch, as Predictor has it.
TEST(UNet2d, TakesABatchAtOneTimeOrEachImageAtItsOwn) {
  const models::UNet2d config{.channels = {8, 16}, .base = 8};
  const auto output = [&](const Tensor& image, const Tensor& time) {
    Graph graph;
    const Value x = graph.input("input", {1, 3, 4, 6}), t = graph.input("time", {1, 8});
    graph.output("output", models::unet2d(Scope(graph), x, t, config));
    Program program(std::move(graph), std::make_shared<State>(Device::cpu(), 7));
    return program.run({{"input", image}, {"time", time}}).output("output").to_vector<float>();
  };
  const Tensor images = numbers("input", {2, 3, 4, 6}).to(DType::f32), times = numbers("time", {2, 8}).to(DType::f32);
  const std::vector<float> apart = output(images, times), first = output(images, times.slice(0, 0, 1)),
                           second = output(images, times.slice(0, 1, 2));
  ASSERT_EQ(apart.size(), 2u * 3 * 4 * 6);
  for (std::size_t i = 0; i < apart.size(); ++i) EXPECT_NEAR(apart[i], i < apart.size() / 2 ? first[i] : second[i], 1e-5);
  EXPECT_NE(first, second);
}

TEST(UNet2d, AsksForTheTimeWhereItsConfigurationSaysSo) {
  for (const bool asks : {false, true}) {
    const Model model = make_model("unet2d", concat(R"({"image_size": [8, 8], "time_input": )", asks ? "true" : "false", "}"));
    Graph graph;
    model.add_to(Scope(graph), {5, 3, 8, 8});
    const graph::Node* const time = graph.find(graph::NodeKind::input, "time");
    ASSERT_EQ(time != nullptr, asks);
    if (time != nullptr) {
      EXPECT_EQ(graph.type(time->outputs[0]).shape, (Shape{5, 64}));
    }
  }
}

}  // namespace
}  // namespace frit
