#include "frit/autograd/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "frit/autograd/gradient_check.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

struct Built {
  Graph graph;
  Value x = graph.input("x", {3}, DType::f64);

  std::vector<double> gradient_of(Value loss, const std::vector<double>& at) {
    graph.output("gradient", gradient(loss, std::span(&x, 1))[0]);
    Program program(graph, std::make_shared<State>());
    return program.run({{"x", Tensor::from(at, {3})}}).output("gradient").to_vector<double>();
  }
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

TEST(Gradient, SumsWhatFlowsBackOnEveryPath) {
  Built b;
  EXPECT_EQ(b.gradient_of(sum(b.x * b.x + b.x), {1, 2, 3}), (std::vector<double>{3, 5, 7}));
}

TEST(Gradient, IsSummedBackOverBroadcastAxes) {
  Built b;
  const Value wide = b.graph.constant(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_EQ(b.gradient_of(sum(wide * b.x), {1, 1, 1}), (std::vector<double>{5, 7, 9}));
}

std::size_t count(const Graph& graph, std::string_view op) {
  const auto operations = graph.all(graph::NodeKind::operation);
  return static_cast<std::size_t>(
      std::count_if(operations.begin(), operations.end(), [&](const graph::Node* n) { return n->op->name == op; }));
}

TEST(Gradient, OfSlicesThatCoverAnAxisIsJoined) {
  const auto weighted = [](Value x, std::int64_t begin, std::int64_t end, double weight) { return sum(slice(x, 0, begin, end)) * weight; };
  Built b;
  EXPECT_EQ(b.gradient_of(weighted(b.x, 1, 3, 2) + weighted(b.x, 0, 1, 3) + sum(b.x), {1, 2, 3}), (std::vector<double>{4, 3, 3}));
  EXPECT_EQ(count(graph::remove_dead_code(b.graph), "slice_backward"), 0u);
  Built overlapping;
  const Value loss = weighted(overlapping.x, 0, 2, 2) + weighted(overlapping.x, 1, 3, 3);
  EXPECT_EQ(overlapping.gradient_of(loss, {1, 2, 3}), (std::vector<double>{2, 5, 3}));
  Built partial;
  EXPECT_EQ(partial.gradient_of(weighted(partial.x, 1, 2, 2), {1, 2, 3}), (std::vector<double>{0, 2, 0}));
}

TEST(Gradient, IsZeroWhereNothingFlows) {
  Built b;
  const Value other = b.graph.input("other", {3}, DType::f64);
  const Value loss = sum(b.x);
  const Values gradients = gradient(loss, std::span(&other, 1));
  EXPECT_EQ(gradients[0].shape(), Shape{3});
  b.graph.output("gradient", gradients[0]);
  Program program(b.graph, std::make_shared<State>());
  const Bindings inputs = {{"x", Tensor::full({3}, 1, DType::f64)}, {"other", Tensor::full({3}, 1, DType::f64)}};
  EXPECT_EQ(program.run(inputs).output("gradient").to_vector<double>(), (std::vector<double>{0, 0, 0}));
}

TEST(Gradient, RefusesValuesOfAnotherGraphAndSaysWhich) {
  Built b, other;
  const Value loss = sum(b.x), foreign = sum(other.x);
  const Value seed = b.graph.constant(Tensor::full({}, 1, DType::f64)),
              foreign_seed = other.graph.constant(Tensor::full({}, 1, DType::f64));
  const Value none;
  EXPECT_EQ(message_of([&] {
              gradient(loss, std::array{b.x, other.x});
            }),
            "gradient: parameter 1 does not belong to the graph of output 0");
  EXPECT_EQ(message_of([&] { gradient(loss, std::span(&none, 1)); }), "gradient: parameter 0 does not belong to the graph of output 0");
  EXPECT_EQ(message_of([&] { gradient(std::span(&loss, 1), std::span(&foreign_seed, 1), std::span(&b.x, 1)); }),
            "gradient: seed 0 does not belong to the graph of output 0");
  EXPECT_EQ(message_of([&] {
              gradient(std::array{loss, foreign}, std::array{seed, seed}, std::span(&b.x, 1));
            }),
            "gradient: output 1 does not belong to the graph of output 0");
}

TEST(Gradient, OfAGradient) {
  Built b;
  const Value first = gradient(sum(b.x * b.x * b.x), std::span(&b.x, 1))[0];
  EXPECT_EQ(b.gradient_of(sum(first), {1, 2, 3}), (std::vector<double>{6, 12, 18}));
}

TEST(Gradient, StopsAtComparisons) {
  Built b;
  const Value zero = b.graph.constant(Tensor::zeros({}, DType::f64));
  EXPECT_EQ(b.gradient_of(sum(where(greater(b.x, zero), b.x * 2.0, b.x)), {1, -1, 0}), (std::vector<double>{2, 1, 1}));
}

TEST(Gradient, NamesAnOperatorThatHasNone) {
  Built b;
  const Value first = gradient(sum(silu(b.x)), std::span(&b.x, 1))[0];
  EXPECT_EQ(message_of([&] { gradient(sum(first), std::span(&b.x, 1)); }),
            "gradient: silu_backward has no gradient: not differentiable twice");
}

TEST(Gradient, NeedsAScalarLoss) {
  Built b;
  EXPECT_EQ(message_of([&] { gradient(b.x, std::span(&b.x, 1)); }), "gradient: the loss must have one element, got f64 3");
}

Value wrong_square(Value x) { return ops::emit_one("wrong_square", {x}); }

/// An operator of the test's own, registered through the public header, whose gradient is wrong by a factor.
void register_wrong_square() {
  if (ops::registry().contains("wrong_square")) return;
  ops::registry().add({
      .name = "wrong_square",
      .summary = "x * x, with the gradient of x * x / 2",
      .inputs = {"input"},
      .infer = ops::infer_same,
      .gradient = [](const ops::GradientContext& c) { return Values{c.gradients[0] * c.inputs[0]}; },
      .cpu = {.run =
                  [](const ops::KernelContext& c) {
                    for (std::int64_t i = 0; i < c.inputs[0].elements(); ++i) {
                      c.outputs[0].data<double>()[i] = c.inputs[0].data<double>()[i] * c.inputs[0].data<double>()[i];
                    }
                  }},
      .dtypes = {DType::f64},
      .samples = [] { return std::vector<ops::Sample>{{.inputs = {Shape{2}}}}; },
  });
}

TEST(GradientCheck, FindsAWrongGradient) {
  register_wrong_square();
  for (const auto mode : {GradientCheckOptions::Mode::full, GradientCheckOptions::Mode::directional}) {
    Graph graph;
    graph.output("y", wrong_square(graph.input("x", {3}, DType::f64)));
    const auto results = check_gradients(graph, {{"x", Tensor::from<double>({1, 2, 3}, {3})}}, std::make_shared<State>(), {.mode = mode});
    ASSERT_EQ(results.size(), 1u);
    EXPECT_FALSE(results[0].passed());
    EXPECT_EQ(results[0].kinks, 0);
    EXPECT_NE(results[0].first_failure.find("difference"), std::string::npos);
  }
}

/// The gradient of the sum of squares, and how many operations it took.
struct Taken {
  std::vector<double> gradient;
  std::size_t operations;
};
Taken gradient_of(Graph& graph, Value y, Value p) {
  const std::size_t before = graph.all(graph::NodeKind::operation).size();
  graph.output("gradient", gradient(sum(square(y)), std::span(&p, 1))[0]);
  const std::size_t operations = graph.all(graph::NodeKind::operation).size() - before;
  Program program(std::move(graph), std::make_shared<State>());
  Tensor x = Tensor::empty({2, 3, 4, 5}, DType::f64);
  for (std::int64_t i = 0; i < x.elements(); ++i) x.data<double>()[i] = std::sin(static_cast<double>(i * i));
  const Bindings inputs = {{"x", x}, {"p", Tensor::from<double>({0.5, -1, 2}, {3, 1, 1})}};
  return {program.run(inputs).output("gradient").to_vector<double>(), operations};
}

TEST(Gradient, OfWhatANormTakesAwayAgainIsZeroAndCostsNothing) {
  Graph hidden, shown, scaled;
  const auto x = [](Graph& graph) { return graph.input("x", {2, 3, 4, 5}, DType::f64); };
  const auto p = [](Graph& graph) { return graph.input("p", {3, 1, 1}, DType::f64); };
  const Value a = p(hidden), b = p(shown), c = p(scaled);
  const Taken of_hidden = gradient_of(hidden, exp(instance_norm(x(hidden) * 2.0 + a)), a);
  EXPECT_EQ(of_hidden.gradient, (std::vector<double>{0, 0, 0}));
  EXPECT_LE(of_hidden.operations, 3u) << "the loss, and zero expanded";
  const Taken of_shown = gradient_of(shown, exp(instance_norm(relu(x(shown) + b))), b);
  EXPECT_GT(std::abs(of_shown.gradient[0]), 1e-3);
  const Taken of_scaled = gradient_of(scaled, exp(instance_norm(x(scaled) * c)), c);
  EXPECT_GT(std::abs(of_scaled.gradient[0]), 1e-9) << "eps shows it";
  EXPECT_GT(of_scaled.operations, 3u);
}

TEST(GradientCheck, ReportsKinksAndDoesNotCountThemAsChecked) {
  Graph graph;
  graph.output("y", relu(graph.input("x", {3}, DType::f64)));
  const auto results = check_gradients(graph, {{"x", Tensor::from<double>({-1, 0, 2}, {3})}}, std::make_shared<State>());
  EXPECT_TRUE(results[0].passed());
  EXPECT_EQ(results[0].kinks, 1);
  EXPECT_EQ(results[0].checked, 8);
}

TEST(GradientCheck, PutsBackWhatItMoved) {
  Graph graph;
  const Value w = graph.variable(
      "w", {DType::f64, {2}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0.3); }, /*trainable=*/true);
  graph.output("y", exp(w * graph.input("x", {2}, DType::f64)));
  const Tensor x = Tensor::from<double>({0.1, 0.7}, {2});
  auto state = std::make_shared<State>();
  for (const auto& result : check_gradients(graph, {{"x", x}}, state)) EXPECT_TRUE(result.passed()) << result.first_failure;
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{0.1, 0.7}));
  EXPECT_EQ(state->at("w").to_vector<double>(), (std::vector<double>{0.3, 0.3}));
}

TEST(GradientCheck, IsInFloat64Only) {
  Graph graph;
  graph.output("y", -graph.input("x", {1}));
  EXPECT_EQ(message_of([&] {
              check_gradients(graph, {{"x", Tensor::zeros({1})}}, std::make_shared<State>());
            }),
            "gradient check: output \"y\" is f32, expected f64");
}

}  // namespace
}  // namespace frit
