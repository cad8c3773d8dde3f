// torchvision's networks and a U-Net as PyTorch exported them, by tracing and by torch.export, with weights that a formula gives: outputs,
// and the losses of 20 steps of training (see tests/golden/make_onnx_networks.py).

#include <gtest/gtest.h>

#include <fstream>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/frit.h"
#include "models/formula.h"
#include "models/onnx/model_builder.h"

namespace frit {
namespace {

std::string network_file(const std::string& name) { return concat(FRIT_SOURCE_DIR, "/tests/golden/onnx/networks/", name); }

/// The network with the weights that its file leaves out.
OnnxModel filled(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(std::string(std::istreambuf_iterator<char>(stream), {}))) << path;
  for (onnx::TensorProto& tensor : *proto.mutable_graph()->mutable_initializer()) {
    if (tensor.data_type() != onnx::TensorProto::FLOAT || tensor.has_raw_data() || tensor.float_data_size() > 0) continue;
    Shape shape;
    for (const std::int64_t size : tensor.dims()) shape.push_back(size);
    const Tensor numbers = formula::initial(tensor.name(), shape).to(DType::f32);
    tensor.set_raw_data(numbers.raw(), static_cast<std::size_t>(numbers.bytes()));
  }
  return ModelBuilder::read_onnx(proto.SerializeAsString());
}

class ExportedNetwork : public testing::TestWithParam<std::string> {
 protected:
  Tensor input(DType dtype) const { return formula::numbers("input", shape_).to(DType::f32).to(dtype); }

  void expect_golden_output(DType dtype, Device device, double tolerance) const {
    const Graph graph = graph::for_inference(import_onnx(model_, {.shapes = {{"input", shape_}}, .precision = dtype}));
    Program program(graph, std::make_shared<State>(device));
    const Tensor found = program.run({{"input", input(dtype)}}).output("output").to(Device::cpu()), expected = file_.at("output");
    ASSERT_EQ(found.shape(), expected.shape());
    const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
    double largest = 0;
    for (const double value : b) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0.1) << "the weights make something of the image";
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << "element " << i;
  }

  void expect_golden_losses(Device device, double tolerance) const {
    Graph graph;
    const Value image = graph.input("input", shape_, DType::f64),
                output = model_.add_to(Scope(graph, "", DType::f64), {{"input", image}}).at(0);
    Shape classes = output.shape();
    classes.erase(1);
    // Of image n the pixel p is of class (n + p) % 3.
    std::vector<std::int64_t> target;
    const std::int64_t pixels = element_count(classes) / classes[0];
    for (std::int64_t i = 0; i < element_count(classes); ++i) target.push_back((i / pixels + i % pixels) % 3);
    const Value wanted = graph.input("target", classes, DType::i64);
    TrainStep step(cross_entropy(output, wanted), Sgd{.learning_rate = 0.01, .momentum = 0.9}, device);
    const std::vector<double> losses = file_.at("losses").to_vector<double>();
    ASSERT_EQ(losses.size(), 20u);
    EXPECT_LT(losses.back(), 0.9 * losses.front()) << "it learns";
    for (const double expected : losses) {
      EXPECT_NEAR(step({{"input", input(DType::f64)}, {"target", Tensor::from(target, classes)}}), expected, tolerance);
    }
  }

  const TensorFile file_ = read_safetensors(network_file(GetParam() + ".safetensors"));
  const OnnxModel model_ = filled(network_file(GetParam() + ".onnx"));
  const Shape shape_ = Shape(file_.at("input_shape").to_vector<std::int64_t>());
};

TEST_P(ExportedNetwork, GivesPyTorchsOutput) {
  expect_golden_output(DType::f64, Device::cpu(), 1e-10);
  expect_golden_output(DType::f32, Device::cpu(), 2e-5);
}

TEST_P(ExportedNetwork, CudaGivesPyTorchsOutput) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  set_numerics({.tf32 = false, .deterministic = true});
  expect_golden_output(DType::f64, {DeviceKind::cuda, 0}, 1e-10);
  expect_golden_output(DType::f32, {DeviceKind::cuda, 0}, 2e-5);
  set_numerics({});
}

INSTANTIATE_TEST_SUITE_P(All, ExportedNetwork,
                         testing::Values("resnet18", "resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
                                         "densenet121", "convnext_tiny", "regnet_x_400mf", "regnet_y_400mf", "shufflenet_v2_x0_5",
                                         "squeezenet1_1", "mnasnet0_5", "googlenet", "vision_transformer", "fcn_resnet50",
                                         "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "unet3d"),
                         [](const auto& tested) { return tested.param; });

class ExportedTraining : public ExportedNetwork {};

TEST_P(ExportedTraining, GivesPyTorchsLosses) { expect_golden_losses(Device::cpu(), 1e-9); }

TEST_P(ExportedTraining, CudaGivesPyTorchsLosses) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  set_numerics({.tf32 = false, .deterministic = true});
  expect_golden_losses({DeviceKind::cuda, 0}, 1e-9);
  set_numerics({});
}

INSTANTIATE_TEST_SUITE_P(Some, ExportedTraining, testing::Values("resnet18", "unet3d"), [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace frit
