#include "frit/graph/profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frit/autograd/train_step.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

std::vector<graph::StepProfile> profiled(const Graph& graph, State& state, const Bindings& inputs, int repeats) {
  graph::Executable executable(graph, state);
  executable.run(inputs);
  return graph::profile(executable, repeats);
}

TEST(Profile, NamesEachStepWithItsTypesAndBytes) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), y = graph.input("y", {3});
  graph.output("z", relu(reshape(x * y, {6})));
  State state;
  const std::vector<graph::StepProfile> steps =
      profiled(graph, state, {{"x", Tensor::full({2, 3}, 2)}, {"y", Tensor::full({3}, 1)}}, /*repeats=*/3);
  ASSERT_EQ(steps.size(), 2u) << "a view runs nothing";
  EXPECT_EQ(steps[0].op, "multiply");
  EXPECT_EQ(steps[0].types, "f32 2x3, f32 3 -> f32 2x3");
  EXPECT_EQ(steps[0].bytes, (6 + 3 + 6) * 4);
  EXPECT_EQ(steps[1].op, "relu");
  EXPECT_EQ(steps[1].types, "f32 6 -> f32 6");
  EXPECT_EQ(steps[1].bytes, (6 + 6) * 4) << "in the place of its input: read and written";
  for (const graph::StepProfile& step : steps) EXPECT_GE(step.microseconds, 0);
}

TEST(Profile, CountsATensorThatIsReadTwiceOnce) {
  Graph graph;
  const Value x = graph.input("x", {5}, DType::f64);
  graph.output("y", x * x);
  State state;
  const auto steps = profiled(graph, state, {{"x", Tensor::full({5}, 2, DType::f64)}}, /*repeats=*/1);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].bytes, (5 + 5) * 8);
}

TEST(Profile, CountsAnUpdateAsReadAndWrittenAndMakesIt) {
  Graph graph;
  const auto zero = [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); };
  ops::advance(graph.variable("count", {DType::i64, {}}, zero), graph.constant(Tensor::full({}, 1)));
  State state;
  const auto steps = profiled(graph, state, {}, /*repeats=*/4);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].types, "i64 scalar, f32 scalar");
  EXPECT_EQ(steps[0].bytes, 2 * 8 + 4);
  EXPECT_EQ(state.at("count").item(), 5) << "one run and four repeats";
}

TEST(Profile, TimesTheGradientWithoutUpdates) {
  Graph graph;
  const auto two = [](const Tensor& tensor, std::uint64_t) { tensor.fill(2); };
  const Value w = graph.variable("w", {DType::f32, {3}}, two, /*trainable=*/true);
  TrainStep step(sum(sigmoid(graph.input("x", {3}) * w)), Sgd{.learning_rate = 1}, Device::cpu());
  const Bindings inputs = {{"x", Tensor::full({3}, 1)}};
  step(inputs);
  const std::vector<double> before = step.state().at("w").to_vector<double>();
  graph::Executable& executable = step.compile({{"x", {DType::f32, {3}}}});
  const std::vector<double> times = graph::time_gradient(executable, "loss", /*warmup=*/1, /*repeats=*/3);
  ASSERT_EQ(times.size(), 3u);
  for (const double time : times) EXPECT_GT(time, 0);
  EXPECT_EQ(step.state().at("w").to_vector<double>(), before);
  EXPECT_THROW(graph::time_gradient(executable, "lose", 1, 3), Error);
}

TEST(Tracing, TimesEachStepOfARunThatGivesTheSame) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), y = graph.input("y", {3});
  graph.output("z", relu(reshape(x * y, {6})));
  State state;
  graph::Executable executable(graph, state);
  const Bindings inputs = {{"x", Tensor::full({2, 3}, 2)}, {"y", Tensor::full({3}, 1.5)}};
  EXPECT_EQ(graph::Tracing::current(), nullptr);
  {
    graph::Tracing tracing;
    executable.run(inputs);
    executable.run();
    ASSERT_EQ(tracing.runs().size(), 2u);
    for (const graph::TracedRun& run : tracing.runs()) {
      ASSERT_EQ(run.steps->size(), 2u);
      EXPECT_EQ((*run.steps)[0].op, "multiply");
      EXPECT_EQ((*run.steps)[1].types, "f32 6 -> f32 6");
      EXPECT_EQ((*run.steps)[0].bytes, (6 + 3 + 6) * 4);
      EXPECT_EQ((*run.steps)[0].alive, (6 + 3 + 6) * 4);
      ASSERT_EQ(run.marks.size(), 3u);
      EXPECT_TRUE(std::is_sorted(run.marks.begin(), run.marks.end()));
    }
    EXPECT_GE(tracing.runs()[1].marks.front(), tracing.runs()[0].marks.back());
  }
  EXPECT_EQ(graph::Tracing::current(), nullptr);
  EXPECT_EQ(executable.output("z").to_vector<double>(), std::vector<double>(6, 3));
}

TEST(Profile, NeedsARepeat) {
  Graph graph;
  graph.output("y", relu(graph.input("x", {1})));
  State state;
  EXPECT_THROW(profiled(graph, state, {{"x", Tensor::zeros({1})}}, 0), Error);
}

}  // namespace
}  // namespace frit
