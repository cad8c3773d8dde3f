#include "frit/autograd/gradient.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

using Loss = Value (*)(Value, Value, Reduction);

Evaluation of(Loss loss, const std::vector<double>& prediction, const std::vector<double>& target, Reduction reduction,
              DType dtype = DType::f64) {
  const auto tensor = [&](const std::vector<double>& values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(dtype);
  };
  return evaluate([&](const Values& v) { return loss(v[0], v[1], reduction); }, {tensor(prediction), tensor(target)});
}

TEST(MeanSquaredError, ReducesAsAsked) {
  const std::vector<double> p = {1, 2, 4, -1}, t = {1, 4, 1, 0};
  EXPECT_TRUE(equal_numbers(of(mean_squared_error, p, t, Reduction::none).output, {0, 4, 9, 1}));
  EXPECT_TRUE(equal_numbers(of(mean_squared_error, p, t, Reduction::sum).output, {14}));
  const Evaluation result = of(mean_squared_error, p, t, Reduction::mean);
  EXPECT_TRUE(equal_numbers(result.output, {3.5}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {0, -1, 1.5, -0.5}));
  EXPECT_TRUE(equal_numbers(result.gradients[1], {0, 1, -1.5, 0.5}));
}

TEST(L1Loss, HasGradientZeroAtTiesAndNaN) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Evaluation result = of(l1_loss, {1, nan, 2, 3, inf, inf, -inf, -0.0}, {1, 1, nan, 5, inf, 1, 1, 0}, Reduction::none, dtype);
    EXPECT_TRUE(equal_numbers(result.output, {0, nan, nan, 2, nan, inf, inf, 0}));
    EXPECT_TRUE(equal_numbers(result.gradients[0], {0, 0, 0, -1, 0, 1, -1, 0}));
    EXPECT_TRUE(equal_numbers(result.gradients[1], {0, 0, 0, 1, 0, -1, 1, 0}));
  }
}

TEST(BinaryCrossEntropyWithLogits, StaysExactInTheTails) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Evaluation result = of(binary_cross_entropy_with_logits, {1000, -1000, 1000, -1000, inf, inf, -inf, nan},
                                 {0, 0, 1, 1, 0, 1, 0, 1}, Reduction::none, dtype);
    EXPECT_TRUE(equal_numbers(result.output, {1000, 0, 0, 1000, inf, nan, nan, nan}));
    EXPECT_TRUE(equal_numbers(result.gradients[0], {1, 0, 0, -1, 1, 0, 0, nan}));
    EXPECT_TRUE(equal_numbers(result.gradients[1], {-1000, 1000, -1000, 1000, -inf, -inf, inf, nan}));
  }
  const Evaluation small = of(binary_cross_entropy_with_logits, {-15, 15}, {0, 1}, Reduction::none, DType::f32);
  for (const double value : small.output) EXPECT_NEAR(value / std::log1p(std::exp(-15.0)), 1, 1e-6);
}

/// The operators of the gradient of loss(p, t) * scale, with respect to p, and t if `both`, as they run.
std::vector<std::string> operators_of_gradient(Loss loss, Reduction reduction, DType dtype, bool both) {
  Graph graph;
  const Value p = graph.input("p", {4, 3}, dtype), t = graph.input("t", {4, 3}, dtype);
  Value value = loss(p, t, reduction);
  if (reduction == Reduction::none) value = sum(value);
  Values with_respect_to = {p};
  if (both) with_respect_to.push_back(t);
  const Values gradients = gradient(value, with_respect_to);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat(i), gradients[i]);
  graph.output("loss", value);
  const Graph clean = graph::apply(graph::cleanup_pipeline(), graph);
  std::vector<std::string> names;
  for (const graph::Node* node : clean.all(graph::NodeKind::operation)) names.push_back(node->op->name);
  return names;
}

TEST(Losses, ComeWithTheirGradient) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(operators_of_gradient(mean_squared_error, Reduction::mean, DType::f32, false), (Names{"mean_squared_error"}));
  EXPECT_EQ(operators_of_gradient(l1_loss, Reduction::sum, DType::f64, true), (Names{"l1_loss", "negate"}));
  const Names two = {"binary_cross_entropy_with_logits", "elementwise"};
  EXPECT_EQ(operators_of_gradient(binary_cross_entropy_with_logits, Reduction::mean, DType::f32, true), two)
      << "the gradient of the target is another";
  const Names halves = {"mean_squared_error", "elementwise"};
  EXPECT_EQ(operators_of_gradient(mean_squared_error, Reduction::mean, DType::f16, false), halves) << "a small share would vanish";
}

TEST(Losses, ScaleTheirGradientInHalvesBeforeItIsRounded) {
  const std::vector<double> p(64, 1e-5), t(64, 0.0);
  const auto tensor = [](const std::vector<double>& values) { return Tensor::from(values, {64}).to(DType::f16); };
  const Evaluation result = evaluate([](const Values& v) { return mean_squared_error(v[0], v[1]) * 4096.0; }, {tensor(p), tensor(t)});
  EXPECT_NEAR(result.gradients[0][0], 2e-5 * 4096 / 64, 1e-5);
}

TEST(Losses, AreNotDifferentiableTwice) {
  Graph graph;
  const Value p = graph.input("p", {4}), t = graph.input("t", {4});
  const Value loss = mean_squared_error(p, t);
  const Value slope = sum(gradient(loss, std::array{p})[0]);
  EXPECT_EQ(message_of([&] { gradient(slope, std::array{p}); }), "gradient: the gradient of a loss is not differentiable");
}

TEST(Losses, OverNothing) {
  for (const Loss loss : {mean_squared_error, l1_loss, binary_cross_entropy_with_logits}) {
    EXPECT_TRUE(equal_numbers(of(loss, {}, {}, Reduction::mean).output, {nan}));
    EXPECT_TRUE(equal_numbers(of(loss, {}, {}, Reduction::sum).output, {0}));
    EXPECT_TRUE(equal_numbers(of(loss, {}, {}, Reduction::none).output, {}));
  }
}

TEST(Losses, AreAccumulatedInDouble) {
  const Tensor p = Tensor::full({300, 1000}, 1.1), t = Tensor::zeros({300, 1000});
  const double square = static_cast<double>(1.1f * 1.1f);
  EXPECT_FLOAT_EQ(static_cast<float>(evaluate([](const Values& v) { return mean_squared_error(v[0], v[1]); }, {p, t}).output[0]),
                  static_cast<float>(square));
}

TEST(Losses, RefuseUnequalTypesAndUnknownReductions) {
  Graph graph;
  const Value p = graph.input("p", {2, 3}), narrow = graph.input("narrow", {3}), wide = graph.input("wide", {2, 3}, DType::f64);
  EXPECT_EQ(message_of([&] { mean_squared_error(p, narrow); }), "mean_squared_error: prediction is f32 2x3, target is f32 3");
  EXPECT_EQ(message_of([&] { l1_loss(p, wide); }), "l1_loss: prediction is f32 2x3, target is f64 2x3");
  EXPECT_EQ(message_of([&] { binary_cross_entropy_with_logits(p, narrow); }),
            "binary_cross_entropy_with_logits: logits is f32 2x3, target is f32 3");
  const ops::Operator& op = ops::registry().find("l1_loss");
  EXPECT_EQ(message_of([&] {
              ops::run(op, std::array{Tensor::zeros({1}), Tensor::zeros({1})}, op.attributes_from_json(R"({"reduction": "avg"})"));
            }),
            "l1_loss: reduction must be \"mean\", \"sum\" or \"none\", got \"avg\"");
}

}  // namespace
}  // namespace frit
