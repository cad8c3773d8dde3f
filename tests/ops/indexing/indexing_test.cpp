#include "frit/ops/indexing/indexing.h"

#include "frit/ops/indexing/grid_sample.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

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

TEST(IndexSelect, PutsTheIndicesAxesInPlaceOfTheAxis) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}), indices = Tensor::from<std::int64_t>({2, 0, 0, 1}, {2, 2});
  const Evaluation result = evaluate([](const Values& v) { return index_select(v[0], 1, v[1]); }, {x, indices});
  EXPECT_EQ(result.output, (std::vector<double>{3, 1, 1, 2, 6, 4, 4, 5}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{2, 1, 1, 2, 1, 1}));
  Graph graph;
  const Value table = graph.input("x", {2, 3});
  EXPECT_EQ(index_select(table, 1, graph.input("i", {5, 4}, DType::i32)).shape(), Shape({2, 5, 4}));
  EXPECT_EQ(index_select(table, 0, graph.input("one", {}, DType::i64)).shape(), Shape({3}));
  EXPECT_EQ(message_of([&] { index_select(table, 1, table); }), "index_select: indices must be i64 or i32, got f32 2x3");
  EXPECT_EQ(message_of([&] {
              evaluate([](const Values& v) { return index_select(v[0], 1, v[1]); }, {x, Tensor::from<std::int64_t>({0, 3}, {2})});
            }),
            "take_along_axis: input \"indices\" has 3 at element 1, expected an index in [0, 3)");
}

std::vector<double> sampled(const Tensor& x, const Tensor& grid) {
  return evaluate([](const Values& v) { return grid_sample(v[0], v[1], {.align_corners = true}); }, {x, grid}).output;
}

TEST(GridSample, PlacesInHalvesAreComputedInFloat32) {
  constexpr std::int64_t size = 260;  // not every number below it is one in bfloat16
  std::vector<double> line;
  for (std::int64_t i = 0; i < size; ++i) line.push_back(static_cast<double>(i % 7));
  const Tensor x = Tensor::from(line, {1, 1, 1, size}), grid = Tensor::from<double>({-1, 0, 0, 0, 1, 0}, {1, 1, 3, 2});
  EXPECT_TRUE(equal_numbers(sampled(x, grid.to(DType::bf16)), {0, 3.5, 259 % 7}));
  EXPECT_TRUE(equal_numbers(sampled(x, grid), {0, 3.5, 259 % 7}));
}

TEST(GridSample, TakesBatchesOfNone) { EXPECT_TRUE(sampled(Tensor::zeros({0, 2, 3, 4}), Tensor::zeros({0, 5, 6, 2})).empty()); }

TEST(GridSample, RefusesWhatIsNotFloating) {
  Graph graph;
  const Value x = graph.input("x", {1, 1, 3, 4}, DType::i32), grid = graph.input("grid", {1, 2, 2, 2});
  EXPECT_THROW(grid_sample(x, grid), Error);
  EXPECT_THROW(grid_sample(grid, x), Error);
}

}  // namespace
}  // namespace frit
