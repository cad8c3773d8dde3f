// What depends on variables and constants alone is computed once, and again when the variables change.

#include "frit/graph/preparation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/autograd/train_step.h"
#include "frit/core/memory/allocator.h"
#include "frit/graph/find_non_finite.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/profile.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

std::vector<std::string> names(const std::vector<graph::Step>& steps) {
  std::vector<std::string> names;
  for (const graph::Step& step : steps) names.push_back(step.op->name);
  return names;
}
using Names = std::vector<std::string>;

/// y = relu(x * exp(w))
class Preparation : public testing::Test {
 protected:
  Preparation() { graph_.output("y", relu(x_ * exp(w_))); }

  float run(graph::Executable& executable) const {
    executable.run({{"x", Tensor::full({3}, 2)}});
    return executable.output("y").to_vector<float>()[2];
  }
  static float with(double w) { return 2 * std::exp(static_cast<float>(w)); }

  Graph graph_;
  Value x_ = graph_.input("x", {3});
  Value w_ = graph_.variable("w", {DType::f32, {3}}, filled(0));
  State state_;
};

TEST_F(Preparation, IsNoPartOfARun) {
  graph::Executable executable(graph_, state_);
  EXPECT_EQ(names(executable.preparation()), Names{"exp"});
  EXPECT_EQ(names(executable.steps()), (Names{"multiply", "relu"}));
  EXPECT_FLOAT_EQ(run(executable), with(0));
  // What it gave is read where it lies, and not computed again.
  executable.preparation()[0].calls[0].outputs[0].fill(10);
  EXPECT_EQ(run(executable), 20);
  EXPECT_EQ(graph::profile(executable, 1).size(), 2u);
  graph::Tracing tracing;
  EXPECT_EQ(run(executable), 20);
  EXPECT_EQ(tracing.runs().at(0).steps->size(), 2u);
}

TEST_F(Preparation, FollowsWhatStateSets) {
  graph::Executable executable(graph_, state_);
  for (const double w : {0.0, 1.0, 1.0, 2.0, 0.0}) {
    state_.set("w", Tensor::full({3}, w));
    EXPECT_FLOAT_EQ(run(executable), with(w));
    EXPECT_FLOAT_EQ(run(executable), with(w));
  }
}

TEST_F(Preparation, FollowsWritesThroughATensor) {
  graph::Executable executable(graph_, state_), other(graph_, state_);
  EXPECT_FLOAT_EQ(run(executable), with(0));
  state_.at("w").fill(1);
  EXPECT_FLOAT_EQ(run(executable), with(1));
  {
    const Tensor view = state_.tensors().at("w").slice(0, 2, 3);
    for (const double w : {2.0, 3.0, 4.0}) {
      view.fill(w);
      EXPECT_FLOAT_EQ(run(executable), with(w));
      EXPECT_FLOAT_EQ(run(other), with(w));
    }
    view.fill(5);
  }
  EXPECT_FLOAT_EQ(run(executable), with(5)) << "written after the last run, by a tensor that is gone";
  EXPECT_FLOAT_EQ(run(other), with(5));
  executable.preparation()[0].calls[0].outputs[0].fill(10);
  EXPECT_EQ(run(executable), 20) << "no tensor is left: the preparation holds";
}

TEST_F(Preparation, FollowsATensorThatItsInitializerKept) {
  Tensor kept;
  Graph graph;
  const Value w = graph.variable("w", {DType::f32, {3}}, [&](const Tensor& tensor, std::uint64_t) { (kept = tensor).fill(0); });
  graph.output("y", graph.input("x", {3}) * exp(w));
  graph::Executable executable(graph, state_);
  EXPECT_FLOAT_EQ(run(executable), with(0));
  kept.fill(1);
  EXPECT_FLOAT_EQ(run(executable), with(1));
}

TEST_F(Preparation, FollowsAVariableThatIsAResult) {
  Graph plain;
  const Value w = plain.variable("w", {DType::f32, {3}}, filled(0));
  plain.output("w", reshape(w, {3, 1}));
  graph::Executable results(plain, state_), executable(graph_, state_);
  results.run({});
  EXPECT_FLOAT_EQ(run(executable), with(0));
  results.output("w").fill(1);
  EXPECT_FLOAT_EQ(run(executable), with(1));
}

TEST_F(Preparation, FollowsUpdatesByOtherExecutables) {
  Graph update;
  const Value w = update.variable("w", {DType::f32, {3}}, filled(0));
  ops::clear(w, update.constant(Tensor::full({}, 1)));
  graph::Executable executable(graph_, state_), updates(update, state_);
  const std::function<void()> ways[] = {[&] { updates.run({}); }, [&] { updates.run_each({}, [](const graph::Step&) { return true; }); },
                                        [&] { (void)graph::profile(updates, 1); },
                                        [&] {
                                          graph::Tracing tracing;
                                          updates.run({});
                                        }};
  for (const auto& way : ways) {
    state_.set("w", Tensor::full({3}, 1));
    EXPECT_FLOAT_EQ(run(executable), with(1));
    way();
    EXPECT_FLOAT_EQ(run(executable), with(0));
  }
}

TEST_F(Preparation, RunsStepByStepFromItsBeginning) {
  graph::Executable executable(graph_, state_);
  EXPECT_FLOAT_EQ(run(executable), with(0));
  std::size_t steps = 0;
  executable.run_each({{"x", Tensor::full({3}, 2)}}, [&](const graph::Step&) { return ++steps < 3; });
  EXPECT_EQ(steps, 3u);
  state_.set("w", Tensor::full({3}, 1000));
  const auto found = graph::find_non_finite(executable, {{"x", Tensor::full({3}, 2)}});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->where.starts_with("operator exp of \"w\", ")) << found->where;
  state_.set("w", Tensor::full({3}, 1));
  executable.run_each({{"x", Tensor::full({3}, 2)}}, [](const graph::Step&) { return false; });
  EXPECT_FLOAT_EQ(run(executable), with(1)) << "after a run that was broken off";
}

TEST_F(Preparation, IsRepeatedAfterItWasBrokenOff) {
  Graph graph;
  const Value v = graph.variable("v", {DType::f32, {1000}}, filled(3)), w = graph.variable("w", {DType::f32, {1000}}, filled(5));
  const Value sum = logsumexp(exp(w), {0}), kept = -v;  // which lies where the exponential did
  graph.output("y", graph.input("x", {1}) * sum + kept);
  graph::Executable executable(graph, state_);
  ASSERT_EQ(names(executable.preparation()), (Names{"exp", "logsumexp", "negate"}));
  EXPECT_EQ(executable.preparation()[0].calls[0].outputs[0].raw(), executable.preparation()[2].calls[0].outputs[0].raw());
  const Bindings inputs = {{"x", Tensor::zeros({1})}};
  executable.run(inputs);
  EXPECT_EQ(executable.output("y").to_vector<double>(), std::vector<double>(1000, -3));
  executable.run_each(inputs, [](const graph::Step&) { return false; });
  executable.run(inputs);
  EXPECT_EQ(executable.output("y").to_vector<double>(), std::vector<double>(1000, -3));
}

TEST_F(Preparation, HasNothingThatChangesOrIsRandom) {
  Graph graph;
  const Value x = graph.input("x", {3}), w = graph.variable("w", {DType::f32, {3}}, filled(1));
  const Value counter = graph.variable("counter", {DType::i64, {}}, filled(0));
  const Value updated = graph.variable("updated", {DType::f32, {3}}, filled(1));
  graph.output("y", x * dropout(w, counter, 0.5, /*seed=*/0) * exp(updated) * sigmoid(-w));
  ops::clear(updated, graph.constant(Tensor::full({}, 1)));
  graph::Executable executable(graph, state_);
  EXPECT_EQ(names(executable.preparation()), (Names{"negate", "sigmoid"}));
}

TEST_F(Preparation, GivesNoOutputsAndNothingMuchLargerThanItReads) {
  Graph graph;
  const Value w = graph.variable("w", {DType::f32, {3}}, filled(1)), doubled = w * 2.0;
  const Value wide = expand(reshape(doubled, {3, 1}), {3, 100'000}), narrow = expand(reshape(doubled, {3, 1}), {3, 100});
  graph.output("given", reshape(exp(doubled), {3, 1}));
  graph.output("wide", graph.input("x", {3, 100'000}) * wide);
  graph.output("narrow", graph.input("z", {3, 100}) * narrow);
  graph::Executable executable(graph, state_);
  EXPECT_EQ(names(executable.preparation()), (Names{"multiply", "expand"}));
}

TEST_F(Preparation, KeepsInTheArenaWhatRunsReadAndNothingElse) {
  constexpr std::int64_t size = 1 << 16, bytes = size * 4;
  Graph graph;
  Value y = graph.input("x", {size});
  for (int i = 0; i < 4; ++i) {
    const Value w = graph.variable(concat("w", i), {DType::f64, {size}}, filled(i));
    y = y + cast(exp(exp(w)), DType::f32);
  }
  graph.output("y", y);
  graph::Executable executable(graph, state_);
  // The input, four factors, and where the result will lie an intermediate one of float64.
  EXPECT_EQ(executable.memory_plan().arena_bytes, (1 + 4 + 2) * bytes);
  EXPECT_EQ(executable.predicted_bytes(), executable.memory_plan().arena_bytes + 4 * 2 * bytes);
  const Tensor x = Tensor::full({size}, 1);
  executable.run({{"x", x}});
  const std::vector<double> first = executable.output("y").to_vector<double>();
  EXPECT_NEAR(first[0], 1 + std::exp(std::exp(0)) + std::exp(std::exp(1)) + std::exp(std::exp(2)) + std::exp(std::exp(3)), 1e3);
  for (int run = 0; run < 4; ++run) {
    if (run == 2) state_.at("w0").fill(0);
    const std::size_t before = allocator_of(Device::cpu()).statistics().allocations;
    executable.run({{"x", x}});
    EXPECT_EQ(allocator_of(Device::cpu()).statistics().allocations, before);
    EXPECT_EQ(executable.output("y").to_vector<double>(), first) << "run " << run;
  }
}

TEST_F(Preparation, OfFrozenParametersHoldsInTraining) {
  const Value v = graph_.variable("v", {DType::f32, {3}}, filled(1), /*trainable=*/true);
  const Value frozen = graph_.variable("frozen", {DType::f32, {3}}, filled(0), /*trainable=*/true);
  const Value loss = mean_squared_error(x_ * logsumexp(frozen, {0}) * exp(v), graph_.input("target", {3}));
  TrainStep step(loss, Sgd{.learning_rate = 0.01}, Device::cpu(), {.schedule = {.warm_up = 100}, .freeze = {"frozen"}, .guarded = true});
  const Bindings inputs = {{"x", Tensor::full({3}, 2)}, {"target", Tensor::full({3}, 2)}};
  const double first = step(inputs);
  graph::Executable& executable = step.compile({{"x", {DType::f32, {3}}}, {"target", {DType::f32, {3}}}});
  ASSERT_EQ(names(executable.preparation()), Names{"logsumexp"});
  const Tensor& prepared = executable.preparation()[0].calls[0].outputs[0];
  EXPECT_LT(step(inputs), first);
  prepared.fill(100);
  EXPECT_GT(step(inputs), 100 * first) << "the steps change neither what it reads nor its result";
  step.state().set("frozen", Tensor::zeros({3}));
  EXPECT_LT(step(inputs), 100 * first);
}

TEST_F(Preparation, FollowsTrainingThatSharesTheState) {
  Graph graph;
  const Value x = graph.input("x", {3}), w = graph.variable("w", {DType::f32, {3}}, filled(0), /*trainable=*/true);
  const Value y = x * exp(w);
  graph.output("y", y);
  const Graph forward = graph::for_inference(graph);
  TrainStep step(mean_squared_error(y, graph.input("target", {3})), Sgd{.learning_rate = 0.01}, Device::cpu());
  Program inference(forward, step.shared_state());
  const Bindings inputs = {{"x", Tensor::full({3}, 2)}};
  for (int i = 0; i < 4; ++i) {
    const float expected = with(step.state().at("w").to_vector<double>()[0]);
    for (int run = 0; run < 2; ++run) EXPECT_FLOAT_EQ(inference.run(inputs).output("y").to_vector<float>()[0], expected) << i;
    step({{"x", Tensor::full({3}, 2)}, {"target", Tensor::full({3}, 5)}});
  }
}

}  // namespace
}  // namespace frit
