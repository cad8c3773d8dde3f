#include "frit/ops/elementwise/activation.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

const float beyond_one = std::nextafter(1.0f, 2.0f), below_three = std::nextafter(3.0f, 0.0f);

TEST(Clamp, PassesTheGradientBetweenTheBoundsIncludingThem) {
  expect_points([](Value x) { return clamp(x, -1, 1); }, {{-2, -1, 0, 0, 0},
                                                          {-beyond_one, -1, 0, 0, 0},
                                                          {-1, -1, 1, inf, nan},
                                                          {0, 0, 1, inf, nan},
                                                          {1, 1, 1, inf, nan},
                                                          {beyond_one, 1, 0, 0, 0},
                                                          {2, 1, 0, 0, 0},
                                                          {inf, 1, 0, 0, 0},
                                                          {-inf, -1, 0, 0, 0},
                                                          {nan, nan, 0, 0, 0}});
}

TEST(Clamp, TakesOneBound) {
  expect_points([](Value x) { return clamp(x, 0.5, {}); },
                {{-inf, 0.5, 0, 0, 0}, {0.5, 0.5, 1, inf, nan}, {inf, inf, 1, inf, nan}, {nan, nan, 0, 0, 0}});
  expect_points([](Value x) { return clamp(x, {}, 0.5); },
                {{-inf, -inf, 1, inf, nan}, {0.5, 0.5, 1, inf, nan}, {inf, 0.5, 0, 0, 0}, {nan, nan, 0, 0, 0}});
}

TEST(Clamp, GivesTheUpperOfCrossedBounds) {
  expect_points([](Value x) { return clamp(x, 1, -1); }, {{-2, -1, 0, 0, 0}, {0, -1, 0, 0, 0}, {2, -1, 0, 0, 0}, {nan, nan, 0, 0, 0}});
  expect_points([](Value x) { return clamp(x, 0.25, 0.25); }, {{0, 0.25, 0, 0, 0}, {0.25, 0.25, 1, inf, nan}, {1, 0.25, 0, 0, 0}});
}

TEST(Clamp, IsNaNForABoundOfNaN) {
  const std::vector<Point> points = {{-2, nan, 0, 0, 0}, {0, nan, 0, 0, 0}, {2, nan, 0, 0, 0}, {inf, nan, 0, 0, 0}, {nan, nan, 0, 0, 0}};
  expect_points([](Value x) { return clamp(x, nan, 1); }, points);
  expect_points([](Value x) { return clamp(x, -1, nan); }, points);
  expect_points([](Value x) { return clamp(x, nan, {}); }, points);
}

TEST(Clamp, NeedsABound) {
  Graph graph;
  const Value x = graph.input("x", {2});
  EXPECT_EQ(message_of([&] { clamp(x, {}, {}); }), "clamp: at least one of min and max is needed");
}

TEST(Relu, IsFlatAtZeroAndPassesNaN) {
  expect_points(relu, {{-1, 0, 0, 0, 0},
                       {-0.0, 0, 0, 0, 0},
                       {0, 0, 0, 0, 0},
                       {2, 2, 1, inf, nan},
                       {-inf, 0, 0, 0, 0},
                       {inf, inf, 1, inf, nan},
                       {nan, nan, 1, inf, nan}});
}

TEST(LeakyRelu, HasTheSlopeAtZeroAndAtNaN) {
  expect_points(
      [](Value x) { return leaky_relu(x, 0.25); },
      {{-2, -0.5, 0.25, inf, nan}, {0, 0, 0.25, inf, nan}, {2, 2, 1, inf, nan}, {-inf, -inf, 0.25, inf, nan}, {nan, nan, 0.25, inf, nan}});
}

TEST(Elu, HasTheLeftSlopeAtZero) {
  expect_points([](Value x) { return elu(x, 2); }, {{0, 0, 2, inf, nan},
                                                    {2, 2, 1, inf, nan},
                                                    {-inf, -2, 0, nan, nan},
                                                    {-1e30, -2, 0, nan, nan},
                                                    {inf, inf, 1, inf, nan},
                                                    {nan, nan, 1, inf, nan}});
}

TEST(HardSigmoid, IsFlatAtItsBoundsAndAtNaN) {
  expect_points(
      hard_sigmoid,
      {{-3, 0, 0, 0, 0}, {3, 1, 0, 0, 0}, {0, 0.5, 1.0 / 6, inf, nan}, {-inf, 0, 0, 0, 0}, {inf, 1, 0, 0, 0}, {nan, nan, 0, 0, 0}});
}

TEST(HardSwish, FollowsPyTorchAtItsBounds) {
  expect_points(hard_swish, {{-3, 0, 0, 0, 0},
                             {3, 3, 1, inf, nan},
                             {0, 0, 0.5, inf, nan},
                             {-4, 0, 0, 0, 0},
                             {-inf, nan, 0, 0, 0},
                             {inf, inf, 1, inf, nan},
                             {nan, nan, 1, inf, nan}});
  const Evaluation inside = evaluate([](const Values& v) { return hard_swish(v[0]); }, {Tensor::full({1}, below_three, DType::f64)});
  EXPECT_NEAR(inside.gradients[0][0], 1.5, 1e-6);
}

TEST(Sigmoid, SaturatesWithoutNaN) {
  expect_points(sigmoid, {{0, 0.5, 0.25, inf, nan},
                          {-inf, 0, 0, nan, nan},
                          {inf, 1, 0, nan, nan},
                          {-1e30, 0, 0, nan, nan},
                          {1e30, 1, 0, nan, nan},
                          {nan, nan, nan, nan, nan}});
}

TEST(Tanh, SaturatesWithoutNaN) {
  expect_points(frit::tanh,
                {{0, 0, 1, inf, nan}, {-inf, -1, 0, nan, nan}, {inf, 1, 0, nan, nan}, {1e30, 1, 0, nan, nan}, {nan, nan, nan, nan, nan}});
}

/// All of the form x * s(x), which is -inf * 0 at -inf in PyTorch too.
TEST(SmoothRectifiers, AreStableForLargeNumbers) {
  const std::vector<Point> points = {{-inf, nan, nan, nan, nan},
                                     {-0x1p60, 0, 0, nan, nan},
                                     {0x1p60, 0x1p60, 1, inf, nan},
                                     {inf, inf, nan, nan, nan},
                                     {nan, nan, nan, nan, nan}};
  expect_points(silu, points);
  expect_points(mish, points);
  expect_points([](Value x) { return gelu(x); }, points);
  expect_points([](Value x) { return gelu(x, GeluForm::tanh); }, points);
}

TEST(SmoothRectifiers, HaveTheirSlopeAtZero) {
  const auto slope = [](const std::function<Value(Value)>& function) {
    return evaluate([&](const Values& v) { return function(v[0]); }, {Tensor::zeros({1}, DType::f64)}).gradients[0][0];
  };
  EXPECT_DOUBLE_EQ(slope(silu), 0.5);
  EXPECT_DOUBLE_EQ(slope(mish), 0.6);
  EXPECT_DOUBLE_EQ(slope([](Value x) { return gelu(x); }), 0.5);
  EXPECT_DOUBLE_EQ(slope([](Value x) { return gelu(x, GeluForm::tanh); }), 0.5);
}

TEST(SmoothRectifiers, SpelledInPrimitivesHaveTheSameTails) {
  const auto swish = [](const Values& v) { return v[0] * sigmoid(v[0] + 3) / 6; };
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor x = Tensor::from<double>({-inf, -0x1p60, -200, 0x1p60, inf, nan}, {6}).to(dtype);
    const std::vector<double> output = evaluate(swish, {x}).output;
    EXPECT_TRUE(equal_numbers({output[0], output[1], output[4], output[5]}, {nan, 0, inf, nan}));
    EXPECT_NEAR(output[2], 0, 1e-80);
    EXPECT_NEAR(output[3], 0x1p60 / 6, 1e-7 * 0x1p60);
  }
}

TEST(Gelu, RefusesAnUnknownForm) {
  EXPECT_EQ(message_of([] {
              ops::run("gelu", {Tensor::zeros({2})}, ops::registry().find("gelu").attributes_from_json(R"({"approximate": "fast"})"));
            }),
            "gelu: approximate is \"none\" or \"tanh\", got \"fast\"");
}

TEST(Softplus, IsTheIdentityAboveItsThreshold) {
  expect_points([](Value x) { return softplus(x, 2, 4); },
                {{2.5, 2.5, 1, inf, nan}, {inf, inf, 1, inf, nan}, {-inf, 0, 0, nan, nan}, {nan, nan, nan, nan, nan}});
  const Evaluation at_threshold = evaluate([](const Values& v) { return softplus(v[0], 2, 4); }, {Tensor::full({1}, 2, DType::f64)});
  EXPECT_NEAR(at_threshold.output[0], std::log1p(std::exp(4.0)) / 2, 1e-15);
  EXPECT_NEAR(at_threshold.gradients[0][0], 1 / (1 + std::exp(-4.0)), 1e-15);
}

/// Numbers of both signs and of every magnitude up to 2^highest.
std::vector<double> magnitudes(int highest) {
  std::vector<double> values;
  for (int exponent = -24; exponent < highest; ++exponent) {
    for (int eighth = 8; eighth < 16; ++eighth) {
      const double value = std::ldexp(eighth + 0.37, exponent - 3);
      values.push_back(static_cast<float>(value));
      values.push_back(static_cast<float>(-value));
    }
  }
  return values;
}

TEST(Activations, AgreeInBothPrecisions) {
  const std::vector<double> values = magnitudes(5);
  const Tensor x = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  const std::pair<const char*, std::function<Value(Value)>> functions[] = {{"elu", [](Value v) { return elu(v); }},
                                                                           {"gelu", [](Value v) { return gelu(v); }},
                                                                           {"sigmoid", sigmoid},
                                                                           {"gelu tanh", [](Value v) { return gelu(v, GeluForm::tanh); }},
                                                                           {"tanh", frit::tanh},
                                                                           {"silu", silu},
                                                                           {"mish", mish},
                                                                           {"softplus", [](Value v) { return softplus(v); }},
                                                                           {"exp", [](Value v) { return frit::exp(v); }},
                                                                           {"log", [](Value v) { return frit::log(frit::abs(v)); }}};
  for (const auto& [name, function] : functions) {
    const auto apply = [&function = function](const Values& v) { return function(v[0]); };
    const Evaluation wide = evaluate(apply, {x}), narrow = evaluate(apply, {x.to(DType::f32)});
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(narrow.output[i], wide.output[i], 4e-6 * std::abs(wide.output[i]) + 1e-37) << name << " at " << values[i];
      EXPECT_NEAR(narrow.gradients[0][i], wide.gradients[0][i], 4e-6 * std::max(1.0, std::abs(wide.gradients[0][i])))
          << name << " at " << values[i];
    }
  }
}

TEST(LeakyRelu, NeedsItsInputForTheGradientOnlyWhereItChangesSigns) {
  for (const double slope : {0.0, 0.1, -0.1}) {
    Graph graph;
    const Value x = graph.input("x", {3}), y = leaky_relu(x, slope);
    gradient(sum(y), std::vector{x});
    const auto nodes = graph.all(graph::NodeKind::operation);
    const auto is_gradient = [](const graph::Node* node) { return node->op->name == "leaky_relu_backward"; };
    const auto found = std::find_if(nodes.begin(), nodes.end(), is_gradient);
    ASSERT_NE(found, nodes.end());
    EXPECT_EQ((*found)->inputs[1], slope < 0 ? x.id() : y.id());
  }
}

TEST(Activations, TakeAGradientThatBroadcasts) {
  const Tensor y = Tensor::from<float>({1, -1, 2, 3}, {2, 2}), gradient = Tensor::from<float>({5, 6}, {2});
  EXPECT_EQ(ops::run("relu_backward", {gradient, y})[0].to_vector<double>(), (std::vector<double>{5, 0, 5, 6}));
}

TEST(Activations, RefuseAGradientOfAnotherShape) {
  EXPECT_EQ(message_of([] {
              ops::run("relu_backward", {Tensor::zeros({2}), Tensor::zeros({3})});
            }),
            "relu_backward: shapes 2 and 3 do not broadcast: sizes 2 and 3 at axis 0");
}

TEST(Activations, AreFloating) {
  EXPECT_EQ(message_of([] { ops::run("relu", {Tensor::zeros({2}, DType::i64)}); }),
            "relu: input \"input\" is i64, which this operator does not take");
}

}  // namespace
}  // namespace frit
