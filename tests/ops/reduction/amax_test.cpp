#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

Evaluation of_all(const std::vector<double>& line, bool least = false) {
  const Tensor x = Tensor::from(line, {static_cast<std::int64_t>(line.size())});
  return evaluate([&](const Values& v) { return least ? min(v[0]) : max(v[0]); }, {x}, 6);
}

TEST(Amax, SharesItsGradientEvenly) {
  EXPECT_TRUE(equal_numbers(of_all({1, 3, 3, 2}).gradients[0], {0, 3, 3, 0}));
  EXPECT_TRUE(equal_numbers(of_all({1, 3, 3, 2, 3}).gradients[0], {0, 2, 2, 0, 2}));
  EXPECT_TRUE(equal_numbers(of_all({-inf, -inf}).gradients[0], {3, 3}));
  EXPECT_TRUE(equal_numbers(of_all({-0.0, 0}).gradients[0], {3, 3}));
  EXPECT_TRUE(equal_numbers(of_all({1, 0, 0}, /*least=*/true).gradients[0], {0, 3, 3}));
  EXPECT_TRUE(equal_numbers(of_all({inf, inf}, /*least=*/true).gradients[0], {3, 3}));
}

TEST(Amax, LetsNaNWinAndShare) {
  const Evaluation result = of_all({1, nan, 3, nan});
  EXPECT_TRUE(equal_numbers(result.output, {nan}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {0, 3, 0, 3}));
  EXPECT_TRUE(equal_numbers(of_all({inf, nan, -inf}, /*least=*/true).gradients[0], {0, 6, 0}));
}

TEST(Amax, SharesOverSeveralAxes) {
  const Tensor x = Tensor::from<double>({1, 2, 5, 5, 5, 0, 2, 1}, {2, 2, 2});
  const Evaluation result = evaluate([](const Values& v) { return max(v[0], {0, 2}); }, {x}, 6);
  EXPECT_TRUE(equal_numbers(result.output, {5, 5}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {0, 0, 3, 3, 6, 0, 0, 0}));
}

// In segments, and down columns.
TEST(Amax, CountsEqualsInLongTensors) {
  const Tensor x = Tensor::full({100'003, 2}, 1);
  EXPECT_EQ(ops::run("amax", {x}, ops::ReductionAttributes{})[1].item(), 200'006);
  EXPECT_EQ(ops::run("amin", {x}, ops::ReductionAttributes{{0}, false})[1].to_vector<double>(), (std::vector<double>{100'003, 100'003}));
  x.slice(0, 70'000, 70'002).fill(-inf);
  EXPECT_EQ(ops::run("amax", {x}, ops::ReductionAttributes{})[1].item(), 200'002);
  EXPECT_EQ(ops::run("amin", {x}, ops::ReductionAttributes{})[1].item(), 4);
}

TEST(Amax, RefusesAnEmptyAxisOnly) {
  Graph graph;
  const Value x = graph.input("x", {2, 0, 3});
  EXPECT_EQ(message_of([&] { max(x); }), "amax: axis 1 is empty (input 2x0x3)");
  EXPECT_EQ(message_of([&] { min(x, {0, 1}); }), "amin: axis 1 is empty (input 2x0x3)");
  EXPECT_EQ(max(x, {0, 2}).shape(), Shape{0});
}

}  // namespace
}  // namespace frit
