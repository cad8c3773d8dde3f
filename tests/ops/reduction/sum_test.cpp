#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

using ops::ReductionAttributes;

TEST(Sum, OverNothingIsZero) {
  EXPECT_EQ(ops::run("sum", {Tensor::zeros({0, 2})}, ReductionAttributes{{0}, false})[0].to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(ops::run("sum", {Tensor::zeros({0, 2})}, ReductionAttributes{})[0].item(), 0);
  EXPECT_EQ(ops::run("sum", {Tensor::zeros({0, 2})}, ReductionAttributes{{1}, true})[0].shape(), (Shape{0, 1}));
}

TEST(Mean, OverNothingIsNaN) {
  EXPECT_TRUE(equal_numbers(ops::run("mean", {Tensor::zeros({0, 2})}, ReductionAttributes{{0}, false})[0].to_vector<double>(), {nan, nan}));
}

TEST(Sum, OfIntegersIsI64) {
  const Tensor bytes = Tensor::full({100'000}, 255, DType::u8);
  const Tensor result = ops::run("sum", {bytes}, ReductionAttributes{})[0];
  EXPECT_EQ(result.dtype(), DType::i64);
  EXPECT_EQ(result.to_vector<std::int64_t>(), (std::vector<std::int64_t>{25'500'000}));
  const Tensor words = Tensor::full({2, 3}, 2'000'000'000, DType::i32);
  EXPECT_EQ(ops::run("sum", {words}, ReductionAttributes{{1}, false})[0].to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{6'000'000'000, 6'000'000'000}));
  const Tensor ends = Tensor::from<std::int64_t>({INT64_MAX, 1, -5}, {3});
  EXPECT_EQ(ops::run("sum", {ends}, ReductionAttributes{})[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{INT64_MAX - 4}));
}

TEST(Sum, OfFloatsIsAccumulatedInDouble) {
  const Tensor x = Tensor::from<float>({1e8f, 1, -1e8f, 2}, {4});
  EXPECT_EQ(ops::run("sum", {x}, ReductionAttributes{})[0].item(), 3);
  const Tensor ones = Tensor::full({(1 << 24) + 2}, 1);  // a float that counts stops at 2^24
  EXPECT_EQ(ops::run("sum", {ones}, ReductionAttributes{})[0].item(), (1 << 24) + 2);
  EXPECT_EQ(ops::run("mean", {ones}, ReductionAttributes{})[0].item(), 1);
}

TEST(Sum, SpreadsItsGradient) {
  const Evaluation result = evaluate([](const Values& v) { return sum(v[0], {1}); }, {Tensor::zeros({2, 3}, DType::f64)}, 5);
  EXPECT_TRUE(equal_numbers(result.gradients[0], {5, 5, 5, 5, 5, 5}));
  const Evaluation mean_result = evaluate([](const Values& v) { return mean(v[0], {0}, true); }, {Tensor::zeros({2, 3}, DType::f64)}, 5);
  EXPECT_TRUE(equal_numbers(mean_result.gradients[0], {2.5, 2.5, 2.5, 2.5, 2.5, 2.5}));
}

TEST(Sum, TakesAxesFromEitherEnd) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5});
  EXPECT_EQ(Graph::of(x).producer(sum(x, {-1, 0}).id()).attributes, ops::Attributes(ReductionAttributes{{0, 2}, false}));
  EXPECT_EQ(sum(x, {-1, 0}).shape(), Shape{3});
  EXPECT_EQ(sum(x, {-1, 0}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  const Value scalar = graph.input("scalar", {});
  EXPECT_EQ(sum(scalar, {0}).shape(), Shape{});
  EXPECT_EQ(sum(scalar, {-1}, true).shape(), Shape{});
}

TEST(Sum, RefusesBadAxes) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] { sum(x, {2}); }), "sum: axis 2 is outside [-2, 2)");
  EXPECT_EQ(message_of([&] { mean(x, {0, -2}); }), "mean: axis 0 is named twice");
  EXPECT_EQ(message_of([&] { sum(graph.input("scalar", {}), {1}); }), "sum: axis 1 is outside [-1, 1)");
  EXPECT_EQ(message_of([&] { mean(graph.input("indices", {2}, DType::i64)); }),
            "mean: input \"input\" is i64, which this operator does not take");
}

TEST(SumTo, SumsWhatBroadcastingAddedOrStretched) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2});
  const auto summed = [&](const Shape& shape) { return evaluate([&](const Values& v) { return sum_to(v[0], shape); }, {x}).output; };
  EXPECT_EQ(summed({}), (std::vector<double>{78}));
  EXPECT_EQ(summed({2}), (std::vector<double>{36, 42}));
  EXPECT_EQ(summed({3, 1}), (std::vector<double>{18, 26, 34}));
  EXPECT_EQ(summed({2, 1, 2}), (std::vector<double>{9, 12, 27, 30}));
  EXPECT_EQ(summed({1, 1, 1}), (std::vector<double>{78}));
  Graph graph;
  const Value value = graph.input("x", {2, 3});
  EXPECT_EQ(sum_to(value, {2, 3}), value);
  EXPECT_EQ(sum_to(graph.input("empty", {0, 3}), {1, 3}).shape(), (Shape{1, 3}));
  EXPECT_EQ(message_of([&] { sum_to(value, {2}); }), "sum_to: shape 2 does not broadcast to 2x3");
  EXPECT_EQ(message_of([&] { sum_to(value, {1, 2, 3}); }), "sum_to: shape 1x2x3 does not broadcast to 2x3");
}

}  // namespace
}  // namespace frit
