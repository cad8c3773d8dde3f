#include "frit/ops/loss/loss.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(ClassLoss, IgnoresWhatItIsToIgnore) {
  const Tensor logits = Tensor::from<double>({0, 0, nan, inf}, {2, 2}), target = Tensor::from<std::int32_t>({1, 9}, {2});
  const Evaluation result = evaluate([](const Values& v) { return cross_entropy(v[0], v[1], {.ignore_index = 9}); }, {logits, target});
  EXPECT_TRUE(equal_numbers(result.output, {std::log(2.0)}));
  const auto all = [](const Values& v) { return cross_entropy(v[0], v[1], {.ignore_index = 9, .reduction = Reduction::none}); };
  EXPECT_TRUE(equal_numbers(evaluate(all, {logits, target}).output, {std::log(2.0), 0}));
}

TEST(ClassLoss, RefusesWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), t = graph.input("t", {2}, DType::i64);
  EXPECT_EQ(message_of([&] { nll_loss(x, x); }), "nll_loss: target is f32 2x3, scores 2x3 need i64 2");
  EXPECT_EQ(message_of([&] { nll_loss(graph.input("y", {2}), t); }), "nll_loss: scores must be (N, C, ...), got 2");
  EXPECT_EQ(message_of([&] { cross_entropy(x, t, {.class_weights = graph.input("w", {2})}); }),
            "cross_entropy: class_weights must be f32 3, got f32 2");
  EXPECT_EQ(message_of([&] { cross_entropy(x, t, {.label_smoothing = 1.5}); }),
            "cross_entropy: label_smoothing must be in [0, 1], got 1.5");
  EXPECT_EQ(message_of([&] {
              evaluate([](const Values& v) { return nll_loss(v[0], v[1]); }, {Tensor::zeros({1, 3}), Tensor::full({1}, 3, DType::i64)});
            }),
            "take_along_axis: input \"indices\" has 3 at element 0, expected an index in [0, 3)");
}

TEST(Losses, RefuseWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), y = graph.input("y", {2});
  EXPECT_EQ(message_of([&] { kl_divergence(x, y); }), "kl_divergence: prediction is f32 2x3, target is f32 2");
  EXPECT_EQ(message_of([&] { huber_loss(x, y); }), "huber_loss: prediction is f32 2x3, target is f32 2");
  EXPECT_EQ(message_of([&] { huber_loss(x, x, 0); }), "huber_loss: delta must be above 0, got 0");
  EXPECT_EQ(message_of([&] { smooth_l1_loss(x, x, -1); }), "smooth_l1_loss: beta must not be negative, got -1");
  EXPECT_EQ(message_of([&] { focal_loss(x, x, {.alpha = 2}); }),
            "focal_loss: gamma must not be negative and alpha not above 1, got 2 and 2");
  EXPECT_EQ(message_of([&] { dice_loss(y, y); }), "dice_loss: prediction must be (N, C, ...), got 2");
  EXPECT_EQ(message_of([&] { dice_loss(x, y); }), "dice_loss: prediction is f32 2x3, target is f32 2");
  EXPECT_EQ(message_of([&] { dice_loss(x, x, {.smooth = -1}); }), "dice_loss: smooth must not be negative, got -1");
}

TEST(DiceLoss, OfVectorsIsOfEachElement) {
  const Tensor p = Tensor::from<double>({0.5, 1}, {1, 2}), t = Tensor::from<double>({1, 0}, {1, 2});
  const DiceOptions options{.activation = DiceActivation::none, .smooth = 0, .reduction = Reduction::none};
  EXPECT_TRUE(equal_numbers(evaluate([&](const Values& v) { return dice_loss(v[0], v[1], options); }, {p, t}).output, {1 - 1 / 1.5, 1}));
}

}  // namespace
}  // namespace frit
