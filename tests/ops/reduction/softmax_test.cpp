#include "frit/autograd/gradient_check.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

// Rows along the last axis, and the same as columns.
void expect_rows(Value (*function)(Value, std::int64_t), const std::vector<std::vector<double>>& rows,
                 const std::vector<std::vector<double>>& expected) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto count = static_cast<std::int64_t>(rows[i].size());
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Tensor row = Tensor::from(rows[i], {1, count}).to(dtype);
      const Tensor columns = row.reshape({count, 1}).expand({count, 2}).contiguous();
      EXPECT_TRUE(equal_numbers(evaluate([&](const Values& v) { return function(v[0], -1); }, {row}).output, expected[i])) << row;
      const std::vector<double> both = evaluate([&](const Values& v) { return function(v[0], 0); }, {columns}).output;
      for (std::size_t j = 0; j < rows[i].size(); ++j)
        EXPECT_TRUE(equal_numbers({both[2 * j], both[2 * j + 1]}, {expected[i][j], expected[i][j]})) << row;
    }
  }
}

TEST(Softmax, HasPyTorchsValuesAtInfinityAndNaN) {
  expect_rows(softmax, {{-inf, -inf}, {-inf, 0}, {inf, 0}, {inf, inf}, {nan, 0}, {1e30, -1e30}, {1e8, 1e8}, {5}},
              {{nan, nan}, {0, 1}, {nan, nan}, {nan, nan}, {nan, nan}, {1, 0}, {0.5, 0.5}, {1}});
}

TEST(LogSoftmax, HasPyTorchsValuesAtInfinityAndNaN) {
  expect_rows(log_softmax, {{-inf, -inf}, {-inf, 0}, {inf, 0}, {inf, inf}, {nan, 0}, {5}},
              {{nan, nan}, {-inf, 0}, {nan, nan}, {nan, nan}, {nan, nan}, {0}});
}

TEST(Softmax, TakesEmptyAxes) {
  EXPECT_EQ(evaluate([](const Values& v) { return softmax(v[0], 1); }, {Tensor::zeros({2, 0})}).output.size(), 0u);
  EXPECT_EQ(evaluate([](const Values& v) { return log_softmax(v[0], 1); }, {Tensor::zeros({0, 3})}).output.size(), 0u);
}

TEST(Softmax, IsDifferentiableTwice) {
  for (Value (*function)(Value, std::int64_t) : {softmax, log_softmax}) {
    Graph graph;
    const Value x = graph.input("x", {2, 3}, DType::f64);
    const Value y = function(x, 1);
    graph.output("gradient", gradient(sum(y * y * y), std::span(&x, 1))[0]);
    const Bindings inputs = {{"x", Tensor::from<double>({0.1, -0.5, 1.2, 2, 0.3, -1}, {2, 3})}};
    for (const GradientCheckResult& result : check_gradients(graph, inputs, std::make_shared<State>())) {
      EXPECT_TRUE(result.passed()) << result.first_failure;
    }
  }
}

TEST(Softmax, RefusesBadAxes) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] { softmax(x, 2); }), "softmax: axis 2 is outside [-2, 2)");
  EXPECT_EQ(message_of([&] { log_softmax(x, -3); }), "log_softmax: axis -3 is outside [-2, 2)");
}

}  // namespace
}  // namespace frit
