#include "frit/ops/norm/norm.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(LayerNorm, RefusesBadCalls) {
  Graph graph;
  auto input = [&, count = 0](const Shape& shape) mutable { return graph.input(concat(count++), shape); };
  const Value x = input({2, 3, 4});
  const auto message = [](const std::function<Value()>& call) { return message_of([&] { call(); }); };
  EXPECT_EQ(message([&] { return layer_norm(x, 0); }),
            "layer_norm: normalized_rank must be from 1 to the input's rank, got 0 (input 2x3x4)");
  EXPECT_EQ(message([&] { return layer_norm(x, 4); }),
            "layer_norm: normalized_rank must be from 1 to the input's rank, got 4 (input 2x3x4)");
  EXPECT_EQ(message([&] { return layer_norm(x, 2, input({12}), input({12})); }),
            "layer_norm: weight must have shape 3x4, got 12 (input 2x3x4)");
  EXPECT_EQ(message([&] { return layer_norm(x, 1, input({4})); }), "layer_norm: weight and bias come both or not at all");
  EXPECT_EQ(message([&] { return layer_norm(x, 1, {}, {}, std::nan("")); }), "layer_norm: eps must not be negative, got nan");
}

TEST(LayerNorm, WeightAndBiasBelongToElements) {
  const double eps = 0.5;  // variance 3.5 + 0.5: rstd is one half
  const Tensor x = Tensor::from<double>({1, 2, 3, 6, 11, 12, 13, 16}, {2, 2, 2});
  const Tensor weight = Tensor::from<double>({1, 2, 4, 8}, {2, 2}), bias = Tensor::from<double>({0, 10, 20, 30}, {2, 2});
  const Evaluation found = evaluate([&](const Values& v) { return layer_norm(v[0], 2, v[1], v[2], eps); }, {x, weight, bias});
  EXPECT_TRUE(equal_numbers(found.output, {-1, 9, 20, 42, -1, 9, 20, 42}));
  EXPECT_TRUE(equal_numbers(found.gradients[1], {-2, -1, 0, 3}));
  EXPECT_TRUE(equal_numbers(found.gradients[2], {2, 2, 2, 2}));
}

TEST(LayerNorm, SingleElementGivesTheBias) {
  const Evaluation found = evaluate([](const Values& v) { return layer_norm(v[0], 1, v[1], v[2]); },
                                    {Tensor::from<float>({3, -4}, {2, 1}), Tensor::full({1}, 2), Tensor::full({1}, 5)});
  EXPECT_TRUE(equal_numbers(found.output, {5, 5}));
  EXPECT_TRUE(equal_numbers(found.gradients[0], {0, 0}));
}

}  // namespace
}  // namespace frit
