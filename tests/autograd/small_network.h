#pragma once

#include <cmath>

#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

inline Initializer normal() {
  return [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 0.2, seed, 0); };
}

/// A small classifier and a batch for it.
struct Network {
  Graph graph;
  Value image = graph.input("image", {16, 2, 8, 8});
  Value label = graph.input("label", {16}, DType::i64);
  Value w = graph.variable("w", {DType::f32, {4, 2, 3, 3}}, normal(), true);
  Value v = graph.variable("v", {DType::f32, {3, 144}}, normal(), true);
  Value loss = cross_entropy(linear(flatten(relu(conv2d(image, w))), v), label);
  Bindings batch;

  Network() {
    const Tensor images = Tensor::empty({16, 2, 8, 8});
    fill_normal(images, 0, 1, 1, 1);
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < 16; ++i) labels.push_back(i % 3);
    batch = {{"image", images}, {"label", Tensor::from(labels, {16})}};
  }

  std::vector<double> losses(Device device, int steps, DType precision = DType::f32) const {
    TrainStep step(loss, Adam{.learning_rate = 1e-2}, device, {.clip_norm = 1.0, .precision = precision});
    std::vector<double> result;
    for (int i = 0; i < steps; ++i) result.push_back(step(batch));
    return result;
  }
};

/// The bits of everything that a training step keeps, but for the loss scale.
inline std::map<std::string, std::vector<std::byte>> kept_bits(const State& state) {
  std::map<std::string, std::vector<std::byte>> bits;
  for (const auto& [name, tensor] : state.tensors()) {
    if (name == "optimizer.loss_scale" || name == "optimizer.good_steps") continue;
    const Tensor there = tensor.to(Device::cpu());
    const auto* const begin = static_cast<const std::byte*>(there.raw());
    bits[name].assign(begin, begin + there.bytes());
  }
  return bits;
}

/// A step whose gradients overflow changes nothing but the loss scale, and training goes on.
inline void expect_an_overflow_to_be_skipped(Device device) {
  const Network network;
  TrainStep step(network.loss, Adam{.learning_rate = 1e-2}, device, {.precision = DType::f16});
  const State& state = step.state();
  for (int i = 0; i < 3; ++i) step(network.batch);
  EXPECT_EQ(state.at("optimizer.loss_scale").item(), 65536);
  EXPECT_EQ(state.at("optimizer.good_steps").item(), 3);
  state.set("optimizer.loss_scale", Tensor::full({}, 0x1p30));
  const auto before = kept_bits(state);
  const double loss = step(network.batch);
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(kept_bits(state), before);
  EXPECT_EQ(step.steps(), 3);
  EXPECT_EQ(state.at("optimizer.loss_scale").item(), 0x1p29);
  EXPECT_EQ(state.at("optimizer.good_steps").item(), 0);
  state.set("optimizer.loss_scale", Tensor::full({}, 1024));
  EXPECT_EQ(step(network.batch), loss) << "of the same parameters";
  EXPECT_NE(kept_bits(state), before);
  EXPECT_EQ(step.steps(), 4);
}

}  // namespace frit
