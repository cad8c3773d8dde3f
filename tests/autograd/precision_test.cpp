// Training with activations and gradients in halves.

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/small_network.h"

namespace frit {
namespace {

TEST(Precision, TrainingFollowsFloat32) {
  const Network network;
  const std::vector<double> expected = network.losses(Device::cpu(), 30);
  for (const auto& [precision, tolerance] : {std::pair(DType::f16, 1e-2), std::pair(DType::bf16, 5e-2)}) {
    const std::vector<double> found = network.losses(Device::cpu(), 30, precision);
    EXPECT_LT(found.back(), 0.7 * found.front());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << precision << " step " << i;
  }
}

TEST(Precision, ParametersAndMomentsStayFloat32) {
  const Network network;
  TrainStep step(network.loss, Adam{}, Device::cpu(), {.precision = DType::bf16});
  step(network.batch);
  for (const auto& [name, tensor] : step.state().tensors()) EXPECT_FALSE(is_half(tensor.dtype())) << name;
  EXPECT_FALSE(step.state().contains("optimizer.loss_scale")) << "bfloat16 reaches as far as float32";
}

TEST(Precision, AnOverflowIsSkipped) { expect_an_overflow_to_be_skipped(Device::cpu()); }

TEST(Precision, TheLossScaleIsDoubledAfterManyGoodSteps) {
  const Network network;
  TrainStep step(network.loss, Sgd{.learning_rate = 1e-3, .momentum = 0.9}, Device::cpu(), {.precision = DType::f16});
  step.state().set("optimizer.loss_scale", Tensor::full({}, 256));
  step.state().set("optimizer.good_steps", Tensor::full({}, 1998, DType::i64));
  step(network.batch);
  EXPECT_EQ(step.state().at("optimizer.loss_scale").item(), 256);
  step(network.batch);
  EXPECT_EQ(step.state().at("optimizer.loss_scale").item(), 512);
  EXPECT_EQ(step.state().at("optimizer.good_steps").item(), 0);
  EXPECT_EQ(step.steps(), 2);
}

TEST(Precision, TheNormThatIsClippedIsThatOfTheUnscaledGradients) {
  const Network network;
  const auto movement = [&](DType precision) {
    TrainStep step(network.loss, Sgd{.learning_rate = 1}, Device::cpu(), {.clip_norm = 0.125, .precision = precision});
    const std::map<std::string, Tensor>& tensors = step.state().tensors();
    std::vector<double> before = tensors.at("w").to_vector<double>(), v = tensors.at("v").to_vector<double>();
    before.insert(before.end(), v.begin(), v.end());
    step(network.batch);
    std::vector<double> after = tensors.at("w").to_vector<double>();
    v = tensors.at("v").to_vector<double>();
    after.insert(after.end(), v.begin(), v.end());
    double square = 0;
    for (std::size_t i = 0; i < after.size(); ++i) square += (after[i] - before[i]) * (after[i] - before[i]);
    return std::sqrt(square);
  };
  for (const DType precision : {DType::f32, DType::f16, DType::bf16}) EXPECT_NEAR(movement(precision), 0.125, 1e-5) << precision;
}

TEST(Precision, RefusesOtherNumberFormats) {
  const Network network;
  EXPECT_THROW(TrainStep(network.loss, Adam{}, Device::cpu(), {.precision = DType::i32}), Error);
}

}  // namespace
}  // namespace frit
