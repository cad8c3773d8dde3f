#include "frit/ops/linear/linear.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Variance, IsExactFarFromZero) {
  const Tensor x = Tensor::from<double>({4096, 4097, 4098, 4099}, {4}).to(DType::f32);
  EXPECT_EQ(evaluate([](const Values& v) { return variance(v[0], {}, false, 0); }, {x}).output, std::vector<double>{1.25});
  EXPECT_TRUE(equal_numbers(evaluate([](const Values& v) { return variance(v[0], {0}, false, 4); }, {x}).output, {inf}));
}

TEST(CumulativeSum, KeepsWhatComesBeforeAnInfinity) {
  const Tensor x = Tensor::from<double>({1, 2, inf, 3, -inf, 4}, {6});
  const Evaluation result = evaluate([](const Values& v) { return cumulative_sum(v[0], 0); }, {x});
  EXPECT_TRUE(equal_numbers(result.output, {1, 3, inf, inf, nan, nan}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{6, 5, 4, 3, 2, 1}));
}

TEST(OneHot, RefusesWhatIsNoIndex) {
  const auto of = [](std::int64_t index) {
    evaluate([](const Values& v) { return one_hot(v[0], 3); }, {Tensor::from<std::int64_t>({0, index}, {2})});
  };
  EXPECT_EQ(message_of([&] { of(3); }), "put_along_axis: input \"indices\" has 3 at element 1, expected an index in [0, 3)");
  EXPECT_EQ(message_of([&] { of(-1); }), "put_along_axis: input \"indices\" has -1 at element 1, expected an index in [0, 3)");
  Graph graph;
  EXPECT_EQ(message_of([&] { one_hot(graph.input("x", {2}), 3); }), "one_hot: indices must be i64 or i32, got f32 2");
  EXPECT_EQ(message_of([&] { one_hot(graph.input("i", {2}, DType::i32), -1); }), "one_hot: classes must not be negative, got -1");
}

TEST(Gather, RefusesOtherShapes) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] {
              gather(x, 1, graph.input("i", {3, 3}, DType::i64));
            }),
            "gather: indices must have the input's shape 2x3 but for axis 1, got 3x3");
  EXPECT_EQ(message_of([&] { gather(x, 1, graph.input("j", {2}, DType::i64)); }),
            "gather: indices must have the input's shape 2x3 but for axis 1, got 2");
  EXPECT_EQ(message_of([&] { gather(x, 1, x); }), "gather: indices must be i64 or i32, got f32 2x3");
}

TEST(Embedding, AddsTheGradientsOfARow) {
  const Tensor weight = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {3, 2}), rows = Tensor::from<std::int32_t>({2, 0, 2, 2}, {2, 2});
  const Evaluation result = evaluate([](const Values& v) { return embedding(v[0], v[1]); }, {rows, weight}, 7);
  EXPECT_EQ(result.output, (std::vector<double>{5, 6, 1, 2, 5, 6, 5, 6}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{7, 7, 0, 0, 21, 21}));
  Graph graph;
  EXPECT_EQ(message_of([&] { embedding(graph.input("i", {2}, DType::i64), graph.input("w", {3})); }),
            "embedding: weight must be (V, D), got 3");
}

TEST(TopK, TakesEachElementOnce) {
  const Tensor x = Tensor::from<double>({-inf, -inf, 2, -inf, nan, 2}, {6});
  EXPECT_EQ(evaluate([](const Values& v) { return top_k(v[0], 6).indices; }, {x}).output, (std::vector<double>{4, 2, 5, 0, 1, 3}));
  const Evaluation result = evaluate([](const Values& v) { return top_k(v[0], 2, 0).values; }, {x});
  EXPECT_TRUE(equal_numbers(result.output, {nan, 2}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{0, 0, 1, 0, 1, 0}));
  Graph graph;
  EXPECT_EQ(message_of([&] { top_k(graph.input("x", {2, 3}), 4); }), "top_k: k must be in [1, 3], got 4 (input 2x3)");
  EXPECT_EQ(message_of([&] { top_k(graph.input("i", {3}, DType::i64), 1); }), "top_k: input is i64, expected a floating dtype");
}

}  // namespace
}  // namespace frit
