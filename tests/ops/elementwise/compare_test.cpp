#include "frit/ops/elementwise/compare.h"

#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes compared(const char* op, const Tensor& a, const Tensor& b) { return ops::run(op, {a, b})[0].to_vector<std::uint8_t>(); }

TEST(Comparisons, AreFalseWithNaNButForNotEqual) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor a = Tensor::from<double>({1, 2, 2, nan, 1, nan, -0.0, -inf}, {8}).to(dtype);
    const Tensor b = Tensor::from<double>({2, 1, 2, 1, nan, nan, 0.0, inf}, {8}).to(dtype);
    EXPECT_EQ(compared("equal", a, b), (Bytes{0, 0, 1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(compared("not_equal", a, b), (Bytes{1, 1, 0, 1, 1, 1, 0, 1}));
    EXPECT_EQ(compared("less", a, b), (Bytes{1, 0, 0, 0, 0, 0, 0, 1}));
    EXPECT_EQ(compared("less_equal", a, b), (Bytes{1, 0, 1, 0, 0, 0, 1, 1}));
    EXPECT_EQ(compared("greater", a, b), (Bytes{0, 1, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(compared("greater_equal", a, b), (Bytes{0, 1, 1, 0, 0, 0, 1, 0}));
  }
}

TEST(Comparisons, TakeIntegersBeyondTheDoublesExactly) {
  constexpr std::int64_t large = std::int64_t{1} << 60;
  EXPECT_EQ(compared("less", Tensor::from<std::int64_t>({large, large}, {2}), Tensor::from<std::int64_t>({large + 1, large}, {2})),
            (Bytes{1, 0}));
}

TEST(Comparisons, Broadcast) {
  const Tensor column = Tensor::from<double>({1, 2}, {2, 1}), row = Tensor::from<double>({1, 2, 3}, {3});
  EXPECT_EQ(compared("less", column, row), (Bytes{0, 1, 1, 0, 0, 1}));
}

TEST(Comparisons, NeedOneDtype) {
  Graph graph;
  const Value a = graph.input("a", {2}), b = graph.input("b", {2}, DType::i64);
  EXPECT_EQ(message_of([&] { less(a, b); }), "less: input \"b\" is i64, input \"a\" is f32");
}

TEST(Where, SelectsAndPassesTheGradientToWhatItSelected) {
  const Tensor condition = Tensor::from<std::uint8_t>({1, 0, 255, 0}, {4});
  const Tensor a = Tensor::from<double>({1, nan, inf, 4}, {4}), b = Tensor::from<double>({nan, -2, nan, -inf}, {4});
  for (const double seed : {1.0, inf, nan}) {
    const Evaluation result = evaluate([](const Values& v) { return where(v[0], v[1], v[2]); }, {condition, a, b}, seed);
    EXPECT_TRUE(equal_numbers(result.output, {1, -2, inf, -inf}));
    EXPECT_TRUE(equal_numbers(result.gradients[0], {seed, 0, seed, 0}));
    EXPECT_TRUE(equal_numbers(result.gradients[1], {0, seed, 0, seed}));
  }
}

TEST(Where, BroadcastsAllThree) {
  const Tensor condition = Tensor::from<std::uint8_t>({1, 0}, {2, 1}), a = Tensor::full({}, 7, DType::f64);
  const Tensor b = Tensor::from<double>({1, 2, 3}, {3});
  const Evaluation result = evaluate([](const Values& v) { return where(v[0], v[1], v[2]); }, {condition, a, b});
  EXPECT_TRUE(equal_numbers(result.output, {7, 7, 7, 1, 2, 3}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {3}));
  EXPECT_TRUE(equal_numbers(result.gradients[1], {1, 1, 1}));
}

TEST(Where, NamesWhatDoesNotFit) {
  Graph graph;
  const Value condition = graph.input("condition", {2}, DType::u8), a = graph.input("a", {2}), b = graph.input("b", {2}, DType::f64);
  EXPECT_EQ(message_of([&] { where(a, a, a); }), "where: input \"condition\" is f32, which this operator does not take");
  EXPECT_EQ(message_of([&] { where(condition, a, b); }), "where: input \"a\" is f32, input \"b\" is f64");
}

}  // namespace
}  // namespace frit
