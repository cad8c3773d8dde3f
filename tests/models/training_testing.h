#pragma once

#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/models/nn.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

/// A small training with all that a checkpoint has to hold: moments, running statistics, a counter of random numbers, sums of gradients,
/// and a schedule.
struct SmallTraining {
  Graph graph;
  Value image = graph.input("image", {8, 1, 6, 6});
  Value label = graph.input("class", {8}, DType::i64);
  Scope scope{graph};

  Value loss() {
    Value x = nn::conv2d(scope / "conv", image, {.out_channels = 4, .kernel_size = {3}});
    x = relu(nn::batch_norm(scope / "norm", x));
    x = nn::dropout(scope / "dropout", flatten(x), 0.25);
    return cross_entropy(nn::linear(scope / "linear", x, {.out_features = 3}), label);
  }

  TrainStep step(const Optimizer& optimizer = Adam{.learning_rate = 0.01}, std::uint64_t seed = 0) {
    TrainOptions options{.seed = seed, .clip_norm = 1.0, .accumulate = 2, .guarded = true};
    options.schedule = {.kind = Schedule::Kind::cosine, .warm_up = 3, .total = 20};
    return TrainStep(loss(), optimizer, Device::cpu(), options);
  }

  static Bindings batch(std::uint64_t number) {
    const Tensor images = Tensor::empty({8, 1, 6, 6});
    fill_normal(images, 0, 1, number, 1);
    std::vector<std::int64_t> classes;
    for (std::uint64_t n = 0; n < 8; ++n) classes.push_back(philox(number, 2, n)[0] % 3);
    return {{"image", images}, {"class", Tensor::from(classes, {8})}};
  }
};

inline std::map<std::string, std::vector<double>> values(const State& state) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& [name, tensor] : state.tensors()) values[name] = tensor.to_vector<double>();
  return values;
}

}  // namespace frit
