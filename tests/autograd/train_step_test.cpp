#include "frit/autograd/train_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/small_network.h"
#include "frit/core/memory/allocator.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/reduction/reduction.h"

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

/// Of which some become one. Were a pass's time to grow with the square of their number, this would take a while.
TEST(TrainStep, TakesAChainOfManyOperations) {
  Graph graph;
  const Value x = graph.input("x", {4}), w = graph.variable("w", {DType::f32, {4}}, filled(0.5), /*trainable=*/true);
  Value y = x * w;
  for (int i = 0; i < 5'000; ++i) y = relu(y) + w;
  TrainStep step(sum(y), Sgd{.learning_rate = 1}, Device::cpu());
  EXPECT_EQ(step({{"x", Tensor::full({4}, 2)}}), 4 * (1 + 5'000 * 0.5));
  EXPECT_EQ(step.state().at("w").to_vector<double>(), std::vector<double>(4, 0.5 - 5'002));
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

TEST(TrainStep, FollowsTheScheduleOfItsOptions) {
  Line line;
  TrainStep step(line.loss, Sgd{.learning_rate = 1e-3}, Device::cpu(),
                 {.schedule = {.kind = Schedule::Kind::step, .interval = 2, .factor = 0.5}});
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    const double rate = step.learning_rate();
    step(line.batch);
    EXPECT_EQ(step.state().at("optimizer.rate").item(), rate);
    rates.push_back(rate);
  }
  EXPECT_EQ(rates, (std::vector<double>{1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4}));
  step.set_learning_rate(1);
  EXPECT_EQ(step.learning_rate(), 0.25);
}

/// The state after so many steps that share a batch of 16 between them.
std::map<std::string, std::vector<double>> after_batches(std::int64_t parts, const Optimizer& optimizer, TrainOptions options) {
  const Network network;
  options.accumulate = parts;
  TrainStep step(network.loss, optimizer, Device::cpu(), options);
  const std::int64_t size = 16 / parts;
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t part = 0; part < parts; ++part) {
      Bindings inputs;
      for (const auto& [name, tensor] : network.batch) inputs[name] = tensor.slice(0, part * size, (part + 1) * size).contiguous();
      step(inputs);
    }
    EXPECT_EQ(step.steps(), round + 1);
  }
  std::map<std::string, std::vector<double>> result;
  for (const auto& [name, tensor] : step.state().tensors()) result[name] = tensor.to_vector<double>();
  return result;
}

TEST(TrainStep, AccumulatedGradientsUpdateAsOneLargeBatch) {
  for (const TrainOptions& options : {TrainOptions{}, TrainOptions{.clip_norm = 0.05}, TrainOptions{.clip_norm = 0.05, .guarded = true}}) {
    for (const Optimizer& optimizer : {Optimizer(Sgd{.learning_rate = 0.1, .momentum = 0.9}), Optimizer(Adam{.learning_rate = 0.01})}) {
      const auto whole = after_batches(1, optimizer, options), parts = after_batches(4, optimizer, options);
      for (const char* const name : {"w", "v"}) {
        const std::vector<double>&expected = whole.at(name), &found = parts.at(name);
        for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5) << name << optimizer.name;
        const std::vector<double>& sums = parts.at("optimizer." + std::string(name) + ".accumulated");
        EXPECT_EQ(std::count(sums.begin(), sums.end(), 0), std::ssize(sums)) << "a sum is not reset";
      }
    }
  }
}

TEST(TrainStep, AccumulatesInHalves) {
  const auto whole = after_batches(1, Sgd{.learning_rate = 0.1}, {.precision = DType::f16}),
             parts = after_batches(4, Sgd{.learning_rate = 0.1}, {.precision = DType::f16});
  for (std::size_t i = 0; i < whole.at("w").size(); ++i) EXPECT_NEAR(parts.at("w")[i], whole.at("w")[i], 2e-3);
}

TEST(TrainStep, LeavesFrozenParametersAsTheyAre) {
  const Network network;
  TrainStep step(network.loss, Adam{.learning_rate = 0.1}, Device::cpu(), {.freeze = {"w*"}});
  const std::vector<double> w = step.state().at("w").to_vector<double>(), v = step.state().at("v").to_vector<double>();
  step(network.batch);
  EXPECT_EQ(step.state().at("w").to_vector<double>(), w);
  EXPECT_NE(step.state().at("v").to_vector<double>(), v);
  EXPECT_FALSE(step.state().contains("optimizer.w.first_moment"));
  EXPECT_THROW(TrainStep(network.loss, Adam{}, Device::cpu(), {.freeze = {"x*"}}), Error);
  EXPECT_THROW(TrainStep(network.loss, Adam{}, Device::cpu(), {.freeze = {"*"}}), Error) << "nothing is left to train";
}

TEST(TrainStep, GuardedStepsEndAtTheFirstThatIsNotFinite) {
  for (const std::int64_t accumulate : {1, 2}) {
    const Network network;
    Bindings broken = network.batch;
    broken["image"] = Tensor::empty({16, 2, 8, 8});
    copy(broken["image"], network.batch.at("image"));
    broken["image"].data<float>()[5] = INFINITY;
    TrainStep step(network.loss, Adam{.learning_rate = 0.01}, Device::cpu(), {.accumulate = accumulate, .guarded = true});
    for (int i = 0; i < 3; ++i) step(network.batch);
    EXPECT_TRUE(step.finite(0, step.gradient_norm().item()));
    EXPECT_GT(step.gradient_norm().item(), 0);
    const auto before = kept_bits(step.state());
    const double loss = step(broken);
    EXPECT_FALSE(step.finite(loss, step.gradient_norm().item()));
    step(network.batch);
    auto after = kept_bits(step.state());
    EXPECT_NE(step.state().at("optimizer.failures").item(), 0);
    step.return_to(3);
    EXPECT_TRUE(kept_bits(step.state()) == before) << "something was updated";
    EXPECT_EQ(step.position().batches, 3);
    for (int i = 0; i < 2; ++i) step(network.batch);
    EXPECT_NE(kept_bits(step.state()), before) << "it does not go on";
  }
}

TEST(TrainStep, ClipsTheGlobalNorm) {
  Line line;
  TrainStep step(line.loss, Sgd{.learning_rate = 1}, Device::cpu(), {.seed = 0, .clip_norm = 0.5});
  step(line.batch);
  EXPECT_NEAR(step.state().at("w").item(), 0.5, 1e-6);
  for (const double nothing : {0.0, -1.0, std::nan("")}) {
    EXPECT_THROW(TrainStep(line.loss, Sgd{}, Device::cpu(), {.clip_norm = nothing}), Error) << nothing;
  }
}

TEST(TrainStep, RefusesAPositionThatNoTrainingHas) {
  Line line;
  TrainStep step(line.loss, Sgd{}, Device::cpu(), {.guarded = true});
  const auto refused = [&](const TrainPosition& position) { EXPECT_THROW(step.set_position(position), Error) << fields_text(position); };
  refused({.batches = -1});
  refused({.batches = INT64_MAX});
  refused({.learning_rate = std::nan("")});
  refused({.plateau = {.waited = -1}});
  refused({.plateau = {.best = std::nan("")}});
  refused({.plateau = {.factor = -1}});
  step.set_position({.batches = 7, .learning_rate = 0.5});
  EXPECT_EQ(step.position().batches, 7);
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

TEST(TrainStep, RefusesALossWithoutParameters) {
  Graph graph;
  const Value x = graph.input("x", {2});
  const Value w = graph.variable("w", {DType::f32, {2}}, filled(1), /*trainable=*/true);
  EXPECT_EQ(refusal([&] { TrainStep(mean_squared_error(x, x), Sgd{}); }), "TrainStep: the loss depends on no trainable variable");
  graph.output("other", x * w);
  EXPECT_EQ(refusal([&] { TrainStep(mean_squared_error(x, x), Sgd{}); }), "TrainStep: the loss depends on no trainable variable")
      << "another result of the graph does";
  EXPECT_EQ(refusal([&] { TrainStep(mean(cast(greater(x, w), DType::f32)), Sgd{}); }),
            "TrainStep: the loss depends on no trainable variable")
      << "but by comparison";
  const Value image = graph.input("image", {2, 3, 4}), shift = graph.variable("shift", {DType::f32, {3, 1}}, filled(1), true);
  EXPECT_EQ(refusal([&] { TrainStep(mean(square(instance_norm(image + shift))), Sgd{}); }),
            "TrainStep: no gradient of the loss reaches any of the 1 trainable variables that it depends on, such as \"shift\"");
  Line line;
  EXPECT_THROW(TrainStep(line.x, Sgd{}), Error) << "not a scalar";
  EXPECT_THROW(static_cast<void>(Optimizer(Adam{.beta1 = 1})), Error);
}

/// What no loss depends on is left alone, though another result of the graph reads it.
TEST(TrainStep, TrainsWhatItsLossDependsOn) {
  Line line;
  const Value other = line.graph.variable("other", {DType::f32, {1, 1}}, filled(1), /*trainable=*/true);
  line.graph.output("more", line.x * other);
  TrainStep step(line.loss, AdamW{.learning_rate = 0.1, .weight_decay = 0.5}, Device::cpu());
  step(line.batch);
  EXPECT_EQ(step.state().at("other").item(), 1);
  EXPECT_NE(step.state().at("w").item(), 0);
}

/// A linear layer in float64, on four samples.
struct Layer {
  Graph graph;
  Value x = graph.input("x", {4, 2}, DType::f64);
  Value y = graph.input("y", {4, 1}, DType::f64);
  Value w = graph.variable(
      "w", {DType::f64, {1, 2}},
      [](const Tensor& tensor, std::uint64_t) {
        tensor.data<double>()[0] = 0.5;
        tensor.data<double>()[1] = -0.25;
      },
      /*trainable=*/true);
  Value b = graph.variable("b", {DType::f64, {1}}, filled(0.125), /*trainable=*/true);
  Value loss = mean_squared_error(linear(x, w, b), y);
  Bindings batch = {{"x", Tensor::from<double>({1, 2, 3, -1, 0.5, 0.25, -2, 1}, {4, 2})},
                    {"y", Tensor::from<double>({1, 2, -1, 0.5}, {4, 1})}};

  static void expect(const State& state, double w0, double w1, double b) {
    const std::vector<double> weight = state.at("w").to_vector<double>();
    EXPECT_NEAR(weight[0], w0, 1e-14);
    EXPECT_NEAR(weight[1], w1, 1e-14);
    EXPECT_NEAR(state.at("b").item(), b, 1e-14);
  }
};

/// Three steps of torch.optim in float64.
TEST(TrainStep, ParameterGroupsHaveOptimizersOfTheirOwn) {
  const Layer layer;
  const auto trained = [&](const Optimizer& optimizer, const ParameterGroup& group, std::int64_t accumulate = 1) {
    TrainStep step(layer.loss, optimizer, Device::cpu(), {.accumulate = accumulate, .groups = {group}});
    for (std::int64_t i = 0; i < 3 * accumulate; ++i) step(layer.batch);
    return step.shared_state();
  };
  const Sgd sgd{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1}, slow{.learning_rate = 0.02, .momentum = 0.9};
  for (const std::int64_t accumulate : {1, 2}) {
    Layer::expect(*trained(sgd, {.names = "b", .optimizer = slow}, accumulate), 0.24277368894958495, 0.08850775933074957,
                  0.19602936248779296);
  }
  Layer::expect(*trained(AdamW{.learning_rate = 0.05, .weight_decay = 0.1},
                         {.most_rank = 1, .optimizer = AdamW{.learning_rate = 0.02, .weight_decay = 0}}),
                0.3492934222227343, -0.09889946801941327, 0.1848769401965737);
  EXPECT_EQ(refusal([&] { trained(sgd, {.names = "bias*", .optimizer = slow}); }),
            "TrainStep: no trained parameter has a name like \"bias*\" and a rank from 0 to 8");
  EXPECT_EQ(refusal([&] { trained(sgd, {.least_rank = 3, .optimizer = slow}); }),
            "TrainStep: no trained parameter has a name like \"*\" and a rank from 3 to 8");
  EXPECT_EQ(refusal([&] { trained(Sgd{.learning_rate = 0}, {.names = "b", .optimizer = slow}); }),
            "TrainStep: a group's learning rate is 0.02, no multiple of the step's, which is 0");
}

TEST(TrainStep, AGroupsRateFollowsTheSchedule) {
  const Layer layer;
  TrainStep step(layer.loss, Sgd{.learning_rate = 0.1}, Device::cpu(),
                 {.groups = {{.names = "b", .optimizer = Sgd{.learning_rate = 0.05}}}});
  step.set_learning_rate(0);
  step(layer.batch);
  Layer::expect(step.state(), 0.5, -0.25, 0.125);
}

/// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(0.75), after three steps of SGD.
TEST(TrainStep, AveragesItsParameters) {
  const Layer layer;
  for (const std::int64_t accumulate : {1, 2}) {
    TrainStep step(layer.loss, Sgd{.learning_rate = 0.05}, Device::cpu(),
                   {.accumulate = accumulate, .guarded = true, .average_decay = 0.75});
    Layer::expect(*step.averaged(), 0.5, -0.25, 0.125);
    for (std::int64_t i = 0; i < 3 * accumulate; ++i) step(layer.batch);
    Layer::expect(step.state(), 0.3707146511077881, -0.07913515949249265, 0.21335874557495116);
    Layer::expect(*step.averaged(), 0.41045843267440796, -0.14211918568611145, 0.17724395275115967);
    EXPECT_EQ(step.averaged()->tensors().size(), 2u);

    Bindings broken = layer.batch;
    broken["x"] = Tensor::full({4, 2}, INFINITY, DType::f64);
    const auto before = kept_bits(*step.averaged());
    for (std::int64_t i = 0; i < accumulate; ++i) step(broken);
    EXPECT_EQ(kept_bits(*step.averaged()), before) << "a step that changed nothing";
  }
  EXPECT_EQ(refusal([&] { TrainStep(layer.loss, Sgd{}, Device::cpu(), {.average_decay = 1}); }),
            "TrainStep: average_decay is 1, expected a number in [0, 1)");
  EXPECT_EQ(refusal([&] { TrainStep(layer.loss, Sgd{}, Device::cpu()).averaged(); }),
            "TrainStep::averaged: the step was made without average_decay");
}

/// One number against another: the first step brings c a to 1 by c, the second to 0 by a.
TEST(TrainStep, TwoStepsShareAState) {
  Graph graph;
  const TensorType scalar{DType::f64, {}};
  const Value a = graph.variable("a", scalar, filled(0.5), /*trainable=*/true), c = graph.variable("c", scalar, filled(2), true);
  const Value x = graph.input("x", {}, DType::f64);
  const Value product = a * c * x;
  const Sgd sgd{.learning_rate = 0.125, .momentum = 0.5};
  TrainStep critic(square(product - 1), sgd, Device::cpu(), {.freeze = {"a"}, .name = "critic"});
  EXPECT_EQ(refusal([&] { TrainStep(square(product), sgd, critic.shared_state(), {.name = "critic"}); }),
            "TrainStep: the state has \"optimizer.critic/step\" already: each of several steps needs a TrainOptions::name of its own");
  EXPECT_EQ(refusal([&] { TrainStep(square(product), sgd, critic.shared_state(), {.name = "gan/critic"}); }),
            "TrainStep: the name \"gan/critic\" has a '/', which ends it in the names of what the optimizer keeps");
  TrainStep generator(square(product), Adam{.learning_rate = 0.25}, critic.shared_state(), {.freeze = {"c"}});
  EXPECT_EQ(&generator.state(), &critic.state());

  double expected_a = 0.5, expected_c = 2, momentum = 0, first = 0, second = 0;
  for (int i = 1; i <= 3; ++i) {
    const Bindings inputs = {{"x", Tensor::full({}, 1, DType::f64)}};
    EXPECT_NEAR(critic(inputs), std::pow(expected_a * expected_c - 1, 2), 1e-14);
    const double slope = 2 * (expected_a * expected_c - 1) * expected_a;
    momentum = i == 1 ? slope : 0.5 * momentum + slope;
    expected_c -= 0.125 * momentum;
    EXPECT_NEAR(generator(inputs), std::pow(expected_a * expected_c, 2), 1e-14);
    const double g = 2 * expected_a * expected_c * expected_c;
    first = 0.9 * first + 0.1 * g;
    second = 0.999 * second + 0.001 * g * g;
    expected_a -= 0.25 * first / (1 - std::pow(0.9, i)) / (std::sqrt(second / (1 - std::pow(0.999, i))) + 1e-8);
    EXPECT_NEAR(critic.state().at("a").item(), expected_a, 1e-13) << i;
    EXPECT_NEAR(critic.state().at("c").item(), expected_c, 1e-13) << i;
    EXPECT_EQ(critic.steps(), i);
    EXPECT_EQ(generator.steps(), i);
  }
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
