#include "frit/ops/reduction/cumulative_sum.h"

#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(CumulativeSum, KeepsWhatComesBeforeAnInfinity) {
  const Tensor x = Tensor::from<double>({1, 2, inf, 3, -inf, 4}, {6});
  const Evaluation result = evaluate([](const Values& v) { return cumulative_sum(v[0], 0); }, {x});
  EXPECT_TRUE(equal_numbers(result.output, {1, 3, inf, inf, nan, nan}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{6, 5, 4, 3, 2, 1}));
}

TEST(CumulativeSum, OfWhatComesBeforeOrFromThereOn) {
  const Tensor x = Tensor::from<double>({1, 2, inf, 4}, {4});
  EXPECT_TRUE(equal_numbers(evaluate([](const Values& v) { return cumulative_sum(v[0], 0, true); }, {x}).output, {0, 1, 3, inf}));
  const Evaluation back = evaluate([](const Values& v) { return cumulative_sum(v[0], 0, true, true); }, {x});
  EXPECT_TRUE(equal_numbers(back.output, {inf, inf, 4, 0}));
  EXPECT_EQ(back.gradients[0], (std::vector<double>{0, 1, 2, 3}));
}

TEST(CumulativeSum, OfIntegersIsWide) {
  const Tensor x = Tensor::from<std::uint8_t>({200, 100, 1}, {3});
  const Tensor sums = ops::run("cumulative_sum", {x}, ops::CumulativeSumAttributes{})[0];
  EXPECT_EQ(sums.dtype(), DType::i64);
  EXPECT_EQ(sums.to_vector<std::int64_t>(), (std::vector<std::int64_t>{200, 300, 301}));
}

/// Rounded after each of so many terms, the sum would stay behind by a hundredth.
TEST(CumulativeSum, OfFloat32IsAddedUpInFloat64) {
  const std::int64_t count = 1 << 20;
  const std::vector<double> sums =
      ops::run("cumulative_sum", {Tensor::full({count}, 0.1)}, ops::CumulativeSumAttributes{})[0].to_vector<double>();
  EXPECT_NEAR(sums.back(), 0.1 * static_cast<double>(count), 0.02);
}

}  // namespace
}  // namespace frit
