#include "frit/ops/reduction/take_along_axis.h"

#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(TakeAlongAxis, GivesItsGradientBackWhereItTook) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Evaluation rows =
      evaluate([](const Values& v) { return ops::take_along_axis(v[0], v[1], 1, false); }, {x, Tensor::from<std::int64_t>({2, 0}, {2})}, 7);
  EXPECT_TRUE(equal_numbers(rows.output, {3, 4}));
  EXPECT_TRUE(equal_numbers(rows.gradients[0], {0, 0, 7, 7, 0, 0}));
  const Evaluation columns = evaluate([](const Values& v) { return ops::take_along_axis(v[0], v[1], 0, true); },
                                      {x, Tensor::from<std::int64_t>({1, 0, 1}, {1, 3})}, 7);
  EXPECT_TRUE(equal_numbers(columns.output, {4, 2, 6}));
  EXPECT_TRUE(equal_numbers(columns.gradients[0], {0, 7, 0, 7, 0, 7}));
}

TEST(TakeAlongAxis, RefusesBadIndices) {
  const auto take = [](std::int64_t index) {
    evaluate([](const Values& v) { return ops::take_along_axis(v[0], v[1], 0, false); },
             {Tensor::zeros({3}), Tensor::full({}, static_cast<double>(index), DType::i64)});
  };
  EXPECT_EQ(message_of([&] { take(3); }), "take_along_axis: input \"indices\" has 3 at element 0, expected an index in [0, 3)");
  EXPECT_EQ(message_of([&] { take(-1); }), "take_along_axis: input \"indices\" has -1 at element 0, expected an index in [0, 3)");
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] {
              ops::take_along_axis(x, graph.input("wide", {2, 3}, DType::i64), 1, false);
            }),
            "take_along_axis: input \"indices\" must be i64 2, got i64 2x3");
  EXPECT_EQ(message_of([&] {
              ops::put_along_axis(x, graph.input("narrow", {2, 3}, DType::i32), 0, 4, false);
            }),
            "put_along_axis: input \"indices\" must be i64 2x3, got i32 2x3");
  EXPECT_EQ(message_of([&] {
              ops::put_along_axis(x, graph.input("places", {2, 3}, DType::i64), 0, 4, true);
            }),
            "put_along_axis: axis 0 must have size 1 (values 2x3)");
}

}  // namespace
}  // namespace frit
