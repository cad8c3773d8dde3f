#include "frit/ops/linear/linear.h"

#include "frit/core/random.h"
#include "frit/eigen.h"
#include "frit/ops/linear/matmul.h"
#include "ops/elementwise/evaluation.h"
#include "ops/linear/both_precisions.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

using ops::MatmulAttributes;

std::string error_of(const char* op, const std::vector<Shape>& shapes, const ops::Attributes& attributes = {}) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::f32, shape});
  return message_of([&] { ops::registry().find(op).infer_types(types, attributes); });
}

TEST(Linear, NamesWhatDoesNotFit) {
  EXPECT_EQ(error_of("linear", {{2, 4}, {3, 5}}), "linear: weight has 5 input features, input has 4 (input 2x4, weight 3x5)");
  EXPECT_EQ(error_of("linear", {{2, 4}, {3, 4}, {4}}), "linear: bias has shape 4, expected 3 (input 2x4, weight 3x4)");
  EXPECT_EQ(error_of("linear", {{2, 4}, {3, 4, 1}}), "linear: weight has rank 3, expected 2 (input 2x4, weight 3x4x1)");
  EXPECT_EQ(error_of("linear", {{}, {3, 4}}), "linear: input needs rank 1 or more (input scalar, weight 3x4)");
  EXPECT_EQ(error_of("linear", {{2, 4}}), "linear: expected 2 to 3 inputs, got 1");
}

TEST(Linear, OfNoFeaturesIsTheBias) {
  const Tensor result = ops::run("linear", {Tensor::zeros({2, 0}), Tensor::zeros({3, 0}), Tensor::from<float>({1, 2, 3}, {3})})[0];
  EXPECT_EQ(result.to_vector<double>(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
  const Tensor wide = ops::run("linear", {Tensor::zeros({2, 0}), Tensor::zeros({600, 0})})[0];
  EXPECT_EQ(wide.to_vector<double>(), std::vector<double>(1200, 0.0));
}

TEST(Linear, OfAnEmptyBatchHasZeroGradientsOfItsParameters) {
  const auto function = [](const Values& v) { return linear(v[0], v[1], v[2]); };
  const Evaluation result = evaluate(function, {Tensor::zeros({0, 4}), Tensor::full({3, 4}, 1), Tensor::full({3}, 1)});
  EXPECT_TRUE(result.output.empty());
  EXPECT_EQ(result.gradients[1], std::vector<double>(12, 0.0));
  EXPECT_EQ(result.gradients[2], std::vector<double>(3, 0.0));
}

TEST(Linear, OfOneVectorHasTheGradientsOfABatchOfOne) {
  const auto function = [](const Values& v) { return linear(v[0], v[1], v[2]); };
  const Tensor x = Tensor::from<double>({1, 2, 3}, {3}), weight = Tensor::from<double>({1, 0, -1, 2, 2, 2}, {2, 3});
  const Tensor bias = Tensor::from<double>({10, 20}, {2});
  const Evaluation vector = evaluate(function, {x, weight, bias}), batch = evaluate(function, {x.reshape({1, 3}), weight, bias});
  EXPECT_EQ(vector.output, (std::vector<double>{8, 32}));
  EXPECT_EQ(vector.output, batch.output);
  EXPECT_EQ(vector.gradients, batch.gradients);
  EXPECT_EQ(vector.gradients[0], (std::vector<double>{3, 2, 1}));
}

TEST(Matmul, NamesWhatDoesNotFit) {
  EXPECT_EQ(error_of("matmul", {{2, 3}, {4, 5}}, MatmulAttributes{}), "matmul: a has 3 columns, b has 4 rows (a 2x3, b 4x5)");
  EXPECT_EQ(error_of("matmul", {{2, 3}, {4, 5}}, MatmulAttributes{true, true}),
            "matmul: a transposed has 2 columns, b transposed has 5 rows (a 2x3, b 4x5)");
  EXPECT_EQ(error_of("matmul", {{3}, {3, 5}}, MatmulAttributes{}), "matmul: both inputs need rank 2 or more (a 3, b 3x5)");
  EXPECT_TRUE(error_of("matmul", {{2, 2, 3}, {3, 3, 5}}, MatmulAttributes{}).starts_with("matmul: "));
}

TEST(Matmul, OverNothingIsZero) {
  const Tensor result = ops::run("matmul", {Tensor::zeros({2, 0}), Tensor::zeros({0, 3})}, MatmulAttributes{})[0];
  EXPECT_EQ(result.to_vector<double>(), std::vector<double>(6, 0.0));
}

TEST(Matmul, LetsNaNAndInfinityThrough) {
  const Tensor a = Tensor::from<double>({inf, 1, nan, 1, 2, 3}, {3, 2}), b = Tensor::from<double>({0, 1, 1, 1}, {2, 2});
  EXPECT_TRUE(equal_numbers(ops::run("matmul", {a, b}, MatmulAttributes{})[0].to_vector<double>(), {nan, inf, nan, nan, 3, 5}));
}

Tensor random_matrix(std::int64_t rows, std::int64_t columns) {
  const Tensor result = Tensor::empty({rows, columns});
  fill_normal(result, 0.3, 1, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns));
  return result.to(DType::f64);
}

TEST(Matmul, EqualsTheDefiningSumForEveryTransposition) {
  for (const auto& [rows, columns, depth] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                                     {1, 300, 700},
                                                                                     {300, 1, 700},
                                                                                     {5, 19, 2000},
                                                                                     {130, 270, 150},
                                                                                     {9, 64, 33},
                                                                                     {1, 1, 5000},
                                                                                     {4, 48, 300},
                                                                                     {100, 800, 8400}}) {
    const Tensor a = random_matrix(rows, depth), b = random_matrix(depth, columns);
    const std::vector<double> expected = from_eigen(eigen_matrix<double>(a) * eigen_matrix<double>(b)).to_vector<double>();
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        SCOPED_TRACE(concat(rows, " rows, ", columns, " columns, depth ", depth, ", transposed ", transpose_a, transpose_b));
        const Tensor left = transpose_a ? a.transpose(0, 1).contiguous() : a, right = transpose_b ? b.transpose(0, 1).contiguous() : b;
        expect_in_both_precisions("matmul", {left, right}, MatmulAttributes{transpose_a, transpose_b}, expected);
      }
    }
  }
}

/// Whatever is computed with it: b packed or not, by rows or across them, its depth in slices or not.
TEST(Matmul, GivesARowTheSameBitsAmongAnyOthers) {
  for (const auto& [columns, depth] :
       std::vector<std::array<std::int64_t, 2>>{{37, 700}, {64, 300}, {900, 260}, {16, 9000}, {5, 3}, {300, 1024}}) {
    const Tensor b = random_matrix(depth, columns).to(DType::f32), transposed = b.transpose(0, 1).contiguous();
    const Tensor a = random_matrix(500, depth).to(DType::f32);
    const Tensor expected = ops::run("matmul", {a, b}, MatmulAttributes{})[0];
    for (const std::int64_t rows : {1, 3, 4, 5, 150}) {
      SCOPED_TRACE(concat(rows, " rows, ", columns, " columns, depth ", depth));
      const Tensor some = a.slice(0, 200, 200 + rows).contiguous(), same = expected.slice(0, 200, 200 + rows).contiguous();
      EXPECT_TRUE(same_bits(ops::run("matmul", {some, b}, MatmulAttributes{})[0], same));
      EXPECT_TRUE(same_bits(ops::run("matmul", {some, transposed}, MatmulAttributes{.transpose_b = true})[0], same));
      EXPECT_TRUE(same_bits(ops::run("linear", {some, transposed})[0], same));
    }
  }
}

TEST(Linear, EqualsItsDefinition) {
  for (const auto& [rows, columns, depth] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {2, 33, 700}, {129, 7, 65}, {64, 1, 300}, {129, 300, 1024}}) {
    SCOPED_TRACE(concat(rows, " rows, ", columns, " columns, depth ", depth));
    const Tensor x = random_matrix(rows, depth), weight = random_matrix(columns, depth), bias = random_matrix(1, columns).reshape({-1});
    const auto product = eigen_matrix<double>(x) * eigen_matrix<double>(weight).transpose();
    const Tensor expected = from_eigen(product.eval().rowwise() + eigen_vector<double>(bias).transpose());
    expect_in_both_precisions("linear", {x, weight, bias}, {}, expected.to_vector<double>());
    expect_in_both_precisions("linear", {x, weight}, {}, from_eigen(product).to_vector<double>());
  }
}

}  // namespace
}  // namespace frit
