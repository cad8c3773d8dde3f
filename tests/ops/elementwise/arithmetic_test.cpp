#include "frit/ops/elementwise/arithmetic.h"

#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

Evaluation of_two(const std::function<Value(Value, Value)>& function, const std::vector<double>& a, const std::vector<double>& b) {
  const auto tensor = [](const std::vector<double>& values) { return Tensor::from(values, {static_cast<std::int64_t>(values.size())}); };
  return evaluate([&](const Values& v) { return function(v[0], v[1]); }, {tensor(a), tensor(b)});
}

TEST(Maximum, SharesTheGradientAtATieAndGivesItToBothAtNaN) {
  const Evaluation result = of_two(maximum, {1, 3, 2, nan, 1, nan, -0.0, inf, -inf}, {2, 1, 2, 1, nan, nan, 0, inf, inf});
  EXPECT_TRUE(equal_numbers(result.output, {2, 3, 2, nan, nan, nan, 0, inf, inf}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {0, 1, 0.5, 1, 1, 1, 0.5, 0.5, 0}));
  EXPECT_TRUE(equal_numbers(result.gradients[1], {1, 0, 0.5, 1, 1, 1, 0.5, 0.5, 1}));
}

TEST(Minimum, SharesTheGradientAtATieAndGivesItToBothAtNaN) {
  const Evaluation result = of_two(minimum, {1, 3, 2, nan, 1, nan, -0.0, inf, -inf}, {2, 1, 2, 1, nan, nan, 0, inf, inf});
  EXPECT_TRUE(equal_numbers(result.output, {1, 1, 2, nan, nan, nan, 0, inf, -inf}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {1, 0, 0.5, 1, 1, 1, 0.5, 0.5, 1}));
  EXPECT_TRUE(equal_numbers(result.gradients[1], {0, 1, 0.5, 1, 1, 1, 0.5, 0.5, 0}));
}

TEST(Power, HasPyTorchsGradientsAtZero) {
  const Evaluation result = of_two([](Value a, Value b) { return power(a, b); }, {0, 0, 0, 0, 3, nan, inf}, {0, 1, 2, -1, 0, 0, 0});
  EXPECT_TRUE(equal_numbers(result.output, {1, 0, 0, inf, 1, 1, 1}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {0, 1, 0, -inf, 0, 0, 0}));
  EXPECT_TRUE(equal_numbers(result.gradients[1], {0, 0, 0, -inf, std::log(3.0), nan, inf}));
}

TEST(Power, TakesAPlainExponent) {
  const Tensor x = Tensor::from<double>({-2, 0, 3}, {3});
  const Evaluation cube = evaluate([](const Values& v) { return power(v[0], 3); }, {x});
  EXPECT_TRUE(equal_numbers(cube.output, {-8, 0, 27}));
  EXPECT_TRUE(equal_numbers(cube.gradients[0], {12, 0, 27}));
  const Evaluation none = evaluate([](const Values& v) { return power(v[0], 0); }, {x});
  EXPECT_TRUE(equal_numbers(none.gradients[0], {0, 0, 0}));
}

/// Those of one number, too, for which there are products and a root.
TEST(Power, IsTheLibrarysForPlainExponents) {
  const std::vector<double> bases = {0, -0.0, 1, -1, 2, -3, 0.5, 7, 1e-30, -1e-30, 1e30, inf, -inf, nan};
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const double exponent : {2.0, 3.0, 0.5, -1.0, 1.0, 0.0, 1.5}) {
      std::vector<double> expected;
      const Tensor x = Tensor::from(bases, {14}).to(dtype);
      for (const double base : x.to_vector<double>()) {
        const double power = std::pow(base, exponent);
        expected.push_back(dtype == DType::f32 ? static_cast<double>(static_cast<float>(power)) : power);
      }
      const std::vector<double> actual = ops::run("power", {x, Tensor::full({}, exponent, dtype)})[0].to_vector<double>();
      for (std::size_t i = 0; i < bases.size(); ++i) {
        SCOPED_TRACE(concat(dtype, ' ', bases[i], " to the ", exponent));
        EXPECT_EQ(std::isnan(actual[i]), std::isnan(expected[i]));
        if (std::isnan(expected[i])) continue;
        const double tolerance = dtype == DType::f32 ? 2e-7 : 4e-16;
        if (actual[i] != expected[i]) {
          EXPECT_NEAR(actual[i], expected[i], tolerance * std::abs(expected[i]));
        }
        EXPECT_EQ(std::signbit(actual[i]), std::signbit(expected[i]));
      }
    }
  }
}

TEST(Divide, FollowsIeeeByZero) {
  const Evaluation result = of_two([](Value a, Value b) { return a / b; }, {1, -1, 0, 1}, {0, 0, 0, -0.0});
  EXPECT_TRUE(equal_numbers(result.output, {inf, -inf, nan, -inf}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {inf, inf, inf, -inf}));
}

TEST(Arithmetic, KeepsTheSignOfZero) {
  const Tensor zeros = Tensor::from<double>({0.0, -0.0}, {2});
  const std::vector<double> negated = ops::run("negate", {zeros})[0].to_vector<double>();
  EXPECT_TRUE(std::signbit(negated[0]));
  EXPECT_FALSE(std::signbit(negated[1]));
}

TEST(Arithmetic, WrapsIntegersAround) {
  const auto run = [](const char* op, const Tensor& a, const Tensor& b) { return ops::run(op, {a, b})[0]; };
  constexpr std::int32_t top = std::numeric_limits<std::int32_t>::max(), bottom = std::numeric_limits<std::int32_t>::min();
  const Tensor ends = Tensor::from<std::int32_t>({top, bottom}, {2}), ones = Tensor::from<std::int32_t>({1, 1}, {2});
  EXPECT_EQ(run("add", ends, ones).to_vector<std::int32_t>(), (std::vector<std::int32_t>{bottom, bottom + 1}));
  EXPECT_EQ(run("subtract", ends, ones).to_vector<std::int32_t>(), (std::vector<std::int32_t>{top - 1, top}));
  EXPECT_EQ(run("multiply", ends, ends).to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(ops::run("negate", {ends})[0].to_vector<std::int32_t>(), (std::vector<std::int32_t>{-top, bottom}));
  const Tensor bytes = Tensor::from<std::uint8_t>({200, 3}, {2}), more = Tensor::from<std::uint8_t>({100, 5}, {2});
  EXPECT_EQ(run("add", bytes, more).to_vector<int64_t>(), (std::vector<std::int64_t>{44, 8}));
  EXPECT_EQ(run("subtract", bytes, more).to_vector<int64_t>(), (std::vector<std::int64_t>{100, 254}));
}

TEST(Arithmetic, SumsTheGradientBackOverBroadcastAxes) {
  const Tensor a = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}), b = Tensor::from<double>({10, 20}, {2, 1});
  const Evaluation result = evaluate([](const Values& v) { return v[0] * v[1]; }, {a, b});
  EXPECT_TRUE(equal_numbers(result.output, {10, 20, 30, 80, 100, 120}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {10, 10, 10, 20, 20, 20}));
  EXPECT_TRUE(equal_numbers(result.gradients[1], {6, 15}));
}

TEST(Arithmetic, TakesPlainNumbersOnEitherSide) {
  const Tensor x = Tensor::from<double>({1, 2, 4}, {3});
  const Evaluation result = evaluate([](const Values& v) { return 8 / (2 * v[0]) - (1 - v[0]) + (3 + v[0] / 2) * 1 - 3 + 0; }, {x});
  EXPECT_TRUE(equal_numbers(result.output, {4.5, 4, 6}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {-2.5, 0.5, 1.25}));
}

TEST(Arithmetic, RefusesANumberThatTheDtypeCannotHold) {
  Graph graph;
  const Value index = graph.input("index", {3}, DType::i64), byte = graph.input("byte", {3}, DType::u8);
  EXPECT_EQ(message_of([&] { index + 0.5; }), "the number 0.5 cannot be an operand of an i64 value");
  EXPECT_EQ(message_of([&] { byte - 256; }), "the number 256 cannot be an operand of an u8 value");
  EXPECT_EQ((index * 2).dtype(), DType::i64);
}

TEST(Arithmetic, NamesTheOperandsThatDoNotFit) {
  Graph graph;
  const Value a = graph.input("a", {2, 3}), b = graph.input("b", {2, 4}), wide = graph.input("wide", {2, 3}, DType::f64);
  const Value index = graph.input("index", {2, 3}, DType::i64);
  EXPECT_EQ(message_of([&] { a + b; }), "add: shapes 2x3 and 2x4 do not broadcast: sizes 3 and 4 at axis 1");
  EXPECT_EQ(message_of([&] { a* wide; }), "multiply: input \"b\" is f64, input \"a\" is f32");
  EXPECT_EQ(message_of([&] { index / index; }), "divide: input \"a\" is i64, which this operator does not take");
  EXPECT_EQ(message_of([&] { power(index, index); }), "power: input \"a\" is i64, which this operator does not take");
}

TEST(Arithmetic, IsDifferentiableAgain) {
  const auto third_derivative = [](const Values& v) {
    Value result = v[0] * v[0] * v[0] / (1 + v[0]);
    for (int order = 0; order < 2; ++order) {
      const Value seed = result.emitter().constant(Tensor::full(result.shape(), 1, result.dtype()));
      result = gradient(std::span(&result, 1), std::span(&seed, 1), std::span(&v[0], 1))[0];
    }
    return result;
  };
  // x^3 / (1 + x) = x^2 - x + 1 - 1 / (1 + x)
  const Evaluation result = evaluate(third_derivative, {Tensor::from<double>({0, 1}, {2})});
  EXPECT_NEAR(result.output[0], 0, 1e-14);
  EXPECT_NEAR(result.output[1], 2 - 2.0 / 8, 1e-14);
  EXPECT_NEAR(result.gradients[0][0], 6, 1e-13);
  EXPECT_NEAR(result.gradients[0][1], 6.0 / 16, 1e-13);
}

}  // namespace
}  // namespace frit
