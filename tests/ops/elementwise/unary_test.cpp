#include "frit/ops/elementwise/unary.h"

#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Abs, HasNoSlopeAtZeroAndAtNaN) {
  expect_points(frit::abs, {{-2, 2, -1, -inf, nan},
                            {-0.0, 0, 0, nan, nan},
                            {0, 0, 0, nan, nan},
                            {2, 2, 1, inf, nan},
                            {-inf, inf, -1, -inf, nan},
                            {inf, inf, 1, inf, nan},
                            {nan, nan, 0, nan, nan}});
}

TEST(Exp, ReachesZeroAndInfinity) {
  expect_points(frit::exp, {{0, 1, 1, inf, nan},
                            {-inf, 0, 0, nan, nan},
                            {inf, inf, inf, inf, nan},
                            {-1e4, 0, 0, nan, nan},
                            {1e4, inf, inf, inf, nan},
                            {nan, nan, nan, nan, nan}});
}

TEST(Log, IsNaNBelowZero) {
  expect_points(frit::log, {{1, 0, 1, inf, nan},
                            {0, -inf, inf, inf, nan},
                            {-0.0, -inf, -inf, -inf, nan},
                            {-2, nan, -0.5, -inf, nan},
                            {inf, inf, 0, nan, nan},
                            {nan, nan, nan, nan, nan}});
}

TEST(Sqrt, IsNaNBelowZero) {
  expect_points(frit::sqrt, {{4, 2, 0.25, inf, nan},
                             {0, 0, inf, inf, nan},
                             {-0.0, 0, -inf, -inf, nan},
                             {-4, nan, nan, nan, nan},
                             {inf, inf, 0, nan, nan},
                             {nan, nan, nan, nan, nan}});
}

TEST(Square, IsSmoothEverywhere) {
  expect_points(square, {{-3, 9, -6, -inf, nan}, {0, 0, 0, nan, nan}, {-inf, inf, -inf, -inf, nan}, {nan, nan, nan, nan, nan}});
}

TEST(Reciprocal, HasAPoleAtZero) {
  expect_points(reciprocal, {{4, 0.25, -0.0625, -inf, nan},
                             {-4, -0.25, -0.0625, -inf, nan},
                             {0, inf, -inf, -inf, nan},
                             {-0.0, -inf, -inf, -inf, nan},
                             {inf, 0, 0, nan, nan},
                             {nan, nan, nan, nan, nan}});
}

TEST(Unary, IsDifferentiableAgain) {
  const auto second_derivative = [](const std::function<Value(Value)>& function, double at) {
    const Evaluation result = evaluate(
        [&](const Values& v) {
          const Value y = function(v[0]);
          const Value seed = y.emitter().constant(Tensor::full(y.shape(), 1, y.dtype()));
          return gradient(std::span(&y, 1), std::span(&seed, 1), std::span(&v[0], 1))[0];
        },
        {Tensor::full({1}, at, DType::f64)});
    return result.gradients[0][0];
  };
  EXPECT_DOUBLE_EQ(second_derivative(frit::exp, 1), std::exp(1.0));
  EXPECT_DOUBLE_EQ(second_derivative(frit::log, 2), -0.25);
  EXPECT_DOUBLE_EQ(second_derivative(frit::sqrt, 4), -1.0 / 32);
  EXPECT_DOUBLE_EQ(second_derivative(square, 3), 2);
  EXPECT_DOUBLE_EQ(second_derivative(reciprocal, 2), 0.25);
  EXPECT_DOUBLE_EQ(second_derivative(frit::abs, -2), 0);
}

}  // namespace
}  // namespace frit
