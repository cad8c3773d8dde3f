#include <numeric>

#include "frit/core/random.h"
#include "frit/eigen.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

struct Row {
  double a, b, result, first, second;
};

// Along a contiguous line and down columns, in both precisions.
void expect_rows(const std::vector<Row>& rows) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const Row& row : rows) {
      const Tensor line = Tensor::from<double>({row.a, row.b}, {1, 2}).to(dtype);
      const Tensor columns = Tensor::from<double>({row.a, row.a, row.a, row.b, row.b, row.b}, {2, 3}).to(dtype);
      const auto result = Tensor::full({}, row.result, dtype).item();
      const Evaluation of_line = evaluate([](const Values& v) { return logsumexp(v[0], {1}); }, {line});
      const Evaluation of_columns = evaluate([](const Values& v) { return logsumexp(v[0], {0}); }, {columns});
      EXPECT_TRUE(equal_numbers(of_line.output, {result})) << line;
      EXPECT_TRUE(equal_numbers(of_line.gradients[0], {row.first, row.second})) << line;
      EXPECT_TRUE(equal_numbers(of_columns.output, {result, result, result})) << line;
      EXPECT_TRUE(equal_numbers(of_columns.gradients[0], {row.first, row.first, row.first, row.second, row.second, row.second})) << line;
    }
  }
}

TEST(LogSumExp, HasPyTorchsValuesAtInfinityAndNaN) {
  expect_rows({
      {-inf, -inf, -inf, nan, nan},
      {-inf, 0, 0, 0, 1},
      {0, -inf, 0, 1, 0},
      {inf, 0, inf, nan, 0},
      {1000, inf, inf, 0, nan},
      {inf, inf, inf, nan, nan},
      {inf, -inf, inf, nan, 0},
      {nan, 0, nan, nan, nan},
      {inf, nan, nan, nan, nan},
      {nan, -inf, nan, nan, nan},
  });
}

// Where the formula exp(x - result) would give rows that sum to 2.
TEST(LogSumExp, SharesItsGradientAtLargeMagnitude) {
  expect_rows({
      {1e8, 1e8, 1e8 + std::log(2.0), 0.5, 0.5},
      {-1e8, -1e8, -1e8 + std::log(2.0), 0.5, 0.5},
      {1e30, 1e30, 1e30, 0.5, 0.5},
      {-1e30, -1e30, -1e30, 0.5, 0.5},
      {1e30, -1e30, 1e30, 1, 0},
  });
}

TEST(LogSumExp, OfOneElementIsTheElement) {
  for (const double x : {0.1, -1e-30, 1e8, -3e38, inf, -inf}) {
    const Evaluation result = evaluate([](const Values& v) { return logsumexp(v[0], {0}); }, {Tensor::full({1}, x)});
    EXPECT_TRUE(equal_numbers(result.output, {Tensor::full({}, x).item()}));
  }
}

TEST(LogSumExp, OverNothingIsMinusInfinity) {
  EXPECT_TRUE(equal_numbers(evaluate([](const Values& v) { return logsumexp(v[0], {1}); }, {Tensor::zeros({2, 0})}).output, {-inf, -inf}));
}

// Long lines, cut into segments, with maxima that rise and fall on the way.
TEST(LogSumExp, GradientRowsSumToOne) {
  for (const std::int64_t count : {10, 1000, 300'000}) {
    for (const double slope : {-100.0, 0.0, 100.0}) {
      for (const double offset : {0.0, 1e4}) {
        const Tensor x = Tensor::empty({count}, DType::f32);
        fill_normal(x, 0, 1, 3, 4);
        auto values = eigen_array<float>(x);
        values += (Eigen::ArrayXd::LinSpaced(count, 0, slope * static_cast<double>(count - 1) / static_cast<double>(count)) + offset)
                      .cast<float>();
        const double reference = std::log((values.cast<double>() - offset - 60).exp().sum()) + offset + 60;
        const Evaluation result = evaluate([](const Values& v) { return logsumexp(v[0], {0}); }, {x});
        EXPECT_NEAR(std::accumulate(result.gradients[0].begin(), result.gradients[0].end(), 0.0), 1, 1e-6);
        EXPECT_NEAR(result.output[0], reference, 2e-7 * std::abs(reference));
      }
    }
  }
}

TEST(LogSumExp, KeepsTheStatisticsOfHalvesInFloat) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}, DType::f16);
  const Values results = ops::emit("logsumexp", {x}, ops::ReductionAttributes{{1}, false});
  EXPECT_EQ(results[0].dtype(), DType::f16);
  EXPECT_EQ(results[1].dtype(), DType::f32);
  EXPECT_EQ(results[2].dtype(), DType::f32);
  const Evaluation result = evaluate([](const Values& v) { return logsumexp(v[0], {0}); }, {Tensor::zeros({70'000}, DType::f16)});
  EXPECT_EQ(result.output[0], static_cast<double>(static_cast<float>(Half(static_cast<float>(std::log(70'000.0))))));
  EXPECT_EQ(result.gradients[0][5], static_cast<double>(static_cast<float>(Half(1.0f / 70'000))));
}

}  // namespace
}  // namespace frit
