#include "frit/ops/reduction/softmax.h"

#include "frit/autograd/gradient_check.h"
#include "frit/core/random.h"
#include "frit/eigen.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"
#include "ops/linear/both_precisions.h"

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

TEST(Softmax, EqualsItsDefinition) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 3}, {3, 1000}, {130, 65}, {1001, 7}, {301, 32}, {70, 33}}) {
    SCOPED_TRACE(concat(rows, " rows of ", columns));
    const Tensor x = Tensor::empty({rows, columns}, DType::f64), g = Tensor::empty({rows, columns}, DType::f64);
    fill_normal(x, 1, 3, 5, 6);
    fill_normal(g, 0, 1, 5, 7);
    const Eigen::ArrayXXd powers = eigen_matrix<const double>(x).array().exp();
    const Tensor expected = from_eigen(powers.colwise() / powers.rowwise().sum());
    expect_in_both_precisions("softmax", {x}, ops::SoftmaxAttributes{1}, expected.to_vector<double>());
    expect_in_both_precisions("softmax", {x.transpose(0, 1).contiguous()}, ops::SoftmaxAttributes{0},
                              expected.transpose(0, 1).to_vector<double>());
    expect_in_both_precisions("log_softmax", {x}, ops::SoftmaxAttributes{1},
                              from_eigen(eigen_array<double>(expected).log()).to_vector<double>());
    const Eigen::ArrayXXd y = eigen_matrix<const double>(expected).array(), gradient = eigen_matrix<const double>(g).array();
    const Tensor backward = from_eigen(y * (gradient.colwise() - (gradient * y).rowwise().sum()));
    expect_in_both_precisions("softmax_backward", {g, expected}, ops::SoftmaxAttributes{1}, backward.to_vector<double>());
  }
}

TEST(Softmax, ALinesBitsDoNotDependOnTheOtherLines) {
  for (const std::int64_t size : {3, 7, 10, 16, 24, 32, 40, 64, 100, 300}) {
    const Tensor x = Tensor::empty({701, size}), y = Tensor::empty({701, size});
    fill_normal(x, 0, 1, 1, 0);
    fill_normal(y, 0, 1, 2, 0);
    for (const char* const name : {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"}) {
      SCOPED_TRACE(concat(name, " of lines of ", size));
      const auto run_lines = [&](std::int64_t begin, std::int64_t end) {
        std::vector<Tensor> inputs = {x.slice(0, begin, end)};
        if (std::string_view(name).ends_with("backward")) inputs.push_back(y.slice(0, begin, end));
        return ops::run(name, inputs, ops::SoftmaxAttributes{1})[0];
      };
      const Tensor all = run_lines(0, 701);
      for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{5, 38}, std::pair{690, 701}}) {
        EXPECT_EQ(run_lines(begin, end).to_vector<float>(), all.slice(0, begin, end).to_vector<float>());
      }
    }
  }
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
