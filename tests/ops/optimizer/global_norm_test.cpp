#include "frit/core/cuda/device.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

Tensor norm(const std::vector<Tensor>& tensors, std::optional<DType> dtype = {}) {
  return ops::run("global_norm", tensors, ops::GlobalNormAttributes{dtype})[0];
}

TEST(GlobalNorm, IsOfAllElementsOfAllTensors) {
  const Tensor a = Tensor::from<float>({1, 2, 4}, {3}), b = Tensor::from<float>({-2}, {1, 1}), none = Tensor::zeros({0});
  EXPECT_EQ(norm({a, none, b}).item(), 5);
  EXPECT_EQ(norm({none}).item(), 0);
  EXPECT_TRUE(std::isnan(norm({Tensor::full({2}, nan), a}).item()));
  EXPECT_EQ(norm({Tensor::full({2}, -inf), a}).item(), inf);
}

TEST(GlobalNorm, IsComputedInDouble) {
  EXPECT_EQ(norm({Tensor::full({4}, 1e30)}).item(), static_cast<double>(2e30f));
  EXPECT_EQ(norm({Tensor::full({10'000}, 300, DType::f16)}).item(), 30'000);
}

TEST(GlobalNorm, IsComputedInDoubleOnCudaToo) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu{DeviceKind::cuda, 0};
  EXPECT_EQ(norm({Tensor::full({4}, 1e30, DType::f32, gpu)}).item(), static_cast<double>(2e30f));
  EXPECT_EQ(norm({Tensor::full({4}, 1e-30, DType::f32, gpu)}).item(), static_cast<double>(2e-30f));
  EXPECT_EQ(norm({Tensor::full({10'000}, 300, DType::f16, gpu)}).item(), 30'000);
}

TEST(GlobalNorm, IsFloat32OfHalvesOnCudaToo) {
  for (const Device device : {Device::cpu(), Device{DeviceKind::cuda, 0}}) {
    if (device.kind == DeviceKind::cuda && cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    for (const std::int64_t elements : {4, 40'000}) {
      const Tensor a = Tensor::full({elements}, 300, DType::f16, device), b = Tensor::full({elements}, 400, DType::f32, device),
                   c = Tensor::full({2 * elements}, 600, DType::bf16, device);
      const Tensor found = norm({a, b, c}, DType::f32);
      EXPECT_EQ(found.dtype(), DType::f32);
      const double square = static_cast<double>(elements) * (300. * 300 + 400. * 400 + 2 * 600. * 600);
      EXPECT_NEAR(found.item(), std::sqrt(square), 1e-6 * std::sqrt(square)) << elements;
    }
  }
}

TEST(GlobalNorm, NeedsOneDtype) {
  Graph graph;
  const Value a = graph.input("a", {2}), b = graph.input("b", {2}, DType::f64);
  EXPECT_EQ(message_of([&] { ops::global_norm(std::array{a, b}); }), "global_norm: tensor 1 is f64, expected f32");
  EXPECT_EQ(message_of([&] { ops::global_norm({}); }), "global_norm: no inputs were given");
}

/// What an update would see.
std::vector<double> clipped(const std::vector<double>& gradient, double max_norm) {
  const Tensor tensor = Tensor::from(gradient, {static_cast<std::int64_t>(gradient.size())});
  Graph graph;
  const Value value = graph.input("gradient", tensor.shape(), DType::f64);
  graph.output("clipped", value * ops::clip_scale(ops::global_norm(std::span(&value, 1)), max_norm));
  Program program(std::move(graph), std::make_shared<State>());
  return program.run({{"gradient", tensor}}).output("clipped").to_vector<double>();
}

TEST(ClipScale, ScalesAsPyTorchDoes) {
  const double scale = 1 / (5 + 1e-6);
  EXPECT_EQ(clipped({3, 4}, 1), (std::vector<double>{3 * scale, 4 * scale}));
  EXPECT_EQ(clipped({3, 4}, 10), (std::vector<double>{3, 4}));
  EXPECT_EQ(clipped({3, 4}, 0), (std::vector<double>{0, 0}));
  EXPECT_EQ(clipped({0, 0}, 1), (std::vector<double>{0, 0}));
  EXPECT_TRUE(equal_numbers(clipped({nan, 4}, 1), {nan, nan}));
  EXPECT_TRUE(equal_numbers(clipped({inf, 4}, 1), {nan, 0}));
}

TEST(ClipScale, RefusesANegativeNorm) {
  EXPECT_EQ(message_of([] { clipped({1}, -1); }), "clip_scale: max_norm is -1, expected a number from 0 on");
}

}  // namespace
}  // namespace frit
