#include "frit/autograd/train_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/core/memory/allocator.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/loss/loss.h"

namespace frit {
namespace {

Initializer filled(double value) {
  return [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
}

/// y = w x on four samples of y = 3 x.
struct Line {
  Graph graph;
  Value x = graph.input("x", {4, 1});
  Value y = graph.input("y", {4, 1});
  Value w = graph.variable("w", {DType::f32, {1, 1}}, filled(0), /*trainable=*/true);
  Value loss = mean_squared_error(linear(x, w), y);
  Bindings batch = {{"x", Tensor::from<float>({1, 2, 3, 4}, {4, 1})}, {"y", Tensor::from<float>({3, 6, 9, 12}, {4, 1})}};
};

TEST(TrainStep, LearnsALine) {
  for (const Optimizer& optimizer :
       {Optimizer(Sgd{.learning_rate = 0.02}), Optimizer(Sgd{.learning_rate = 0.01, .momentum = 0.5, .nesterov = true}),
        Optimizer(Adam{.learning_rate = 0.1}), Optimizer(AdamW{.learning_rate = 0.1, .weight_decay = 0})}) {
    Line line;
    TrainStep step(line.loss, optimizer);
    EXPECT_EQ(step(line.batch), 67.5) << "the loss before the update";
    for (int i = 0; i < 300; ++i) step(line.batch);
    EXPECT_NEAR(step.state().at("w").item(), 3, 2e-2) << optimizer.name;
    EXPECT_EQ(step.steps(), 301);
  }
}

TEST(TrainStep, AllocatesNothingAfterTheFirst) {
  Line line;
  TrainStep step(line.loss, Adam{}, Device::cpu());
  step(line.batch);
  const std::uint64_t before = allocator_of(Device::cpu()).statistics().allocations;
  step(line.batch);
  EXPECT_EQ(allocator_of(Device::cpu()).statistics().allocations, before);
}

TEST(TrainStep, TakesASmallerLastBatch) {
  Line line;
  TrainStep step(line.loss, Sgd{.learning_rate = 0.01});
  step(line.batch);
  const Bindings rest = {{"x", Tensor::from<float>({1}, {1, 1})}, {"y", Tensor::from<float>({3}, {1, 1})}};
  EXPECT_GT(step(rest), 0);
  EXPECT_EQ(step.steps(), 2);
}

TEST(TrainStep, FollowsALearningRateSchedule) {
  Line line;
  TrainStep step(line.loss, Sgd{.learning_rate = 0.02});
  step.set_learning_rate(0);
  step(line.batch);
  EXPECT_EQ(step.state().at("w").item(), 0);
}

TEST(TrainStep, ClipsTheGlobalNorm) {
  Line line;
  TrainStep step(line.loss, Sgd{.learning_rate = 1}, Device::cpu(), {.seed = 0, .clip_norm = 0.5});
  step(line.batch);
  EXPECT_NEAR(step.state().at("w").item(), 0.5, 1e-6);
}

TEST(TrainStep, RefusesALossWithoutParameters) {
  Graph graph;
  const Value x = graph.input("x", {2});
  EXPECT_THROW(TrainStep(mean_squared_error(x, x), Sgd{}), Error);
  Line line;
  EXPECT_THROW(TrainStep(line.x, Sgd{}), Error) << "not a scalar";
  EXPECT_THROW(static_cast<void>(Optimizer(Adam{.beta1 = 1})), Error);
}

TEST(TrainStep, TakesAnOptimizerOfTheProgramsOwn) {
  Line line;
  std::vector<std::string> seen;
  const Optimizer recording{"recording", 0.1, [&](const UpdateSite& site) {
                              seen.push_back(site.name);
                              ops::sgd_update(site.parameter, site.gradient, site.rate, site.step, site.gradient_scale, {}, {});
                            }};
  TrainStep step(line.loss, recording);
  EXPECT_EQ(seen, std::vector<std::string>{"w"});
  EXPECT_GT(step(line.batch), 0);
}

}  // namespace
}  // namespace frit
