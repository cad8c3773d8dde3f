#include "frit/autograd/gradient_check.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/resize.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Rearrange, RefusesWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] { split(x, 0, 1); }), "split: size must be positive, got 0");
  EXPECT_EQ(message_of([&] { split(x, {1, 1}, 1); }), "split: sizes must add up to the axis' 3, got 2 (input 2x3)");
  EXPECT_EQ(message_of([&] {
              split(x, {2, 2}, 1);
            }),
            "split: sizes must not be negative nor exceed the axis' 3 together, got 2 after 2 (input 2x3)");
  EXPECT_EQ(message_of([&] {
              split(x, {INT64_MAX, INT64_MAX}, 1);
            }),
            "split: sizes must not be negative nor exceed the axis' 3 together, got 9223372036854775807 after 0 (input 2x3)");
  EXPECT_EQ(message_of([&] { split(x, 1, 2); }), "split: axis 2 is outside [-2, 2)");
  EXPECT_EQ(message_of([&] { stack({}, 0); }), "stack: no parts were given");
  EXPECT_EQ(message_of([&] { stack({x, graph.input("y", {2, 4})}, 0); }), "stack: part 1 is f32 2x4, expected f32 2x3");
  EXPECT_EQ(message_of([&] { stack({x, x}, 3); }), "stack: axis 3 is outside [-3, 3)");
  EXPECT_EQ(message_of([&] { squeeze(x, {1}); }), "squeeze: axis 1 must have size 1 (input 2x3)");
  EXPECT_EQ(message_of([&] { unsqueeze(x, 3); }), "unsqueeze: axis 3 is outside [-3, 3)");
  EXPECT_EQ(message_of([&] { select(x, 1, 3); }), "select: index 3 is outside [-3, 3) of axis 1 of 2x3");
  EXPECT_EQ(message_of([&] { tile(x, {2}); }), "tile: expected 2 numbers, got 1 (input 2x3)");
  EXPECT_EQ(message_of([&] { tile(x, {1, -1}); }), "tile: times must not be negative, got 1x-1");
  EXPECT_EQ(message_of([&] { tile(x, {1, INT64_MAX}); }), "tile: axis 1 would be longer than 2^63 - 1");
  EXPECT_EQ(message_of([&] { flip(x, 2); }), "flip: axis 2 is outside [-2, 2)");
  EXPECT_EQ(message_of([&] { roll(x, 1, -3); }), "roll: axis -3 is outside [-2, 2)");
  EXPECT_EQ(message_of([&] { pixel_shuffle(x, 2); }), "pixel_shuffle: expected (N, C r r, H, W) with r = 2, got 2x3");
  const Value image = graph.input("image", {1, 6, 4, 6});
  EXPECT_EQ(message_of([&] { pixel_shuffle(image, 2); }), "pixel_shuffle: expected (N, C r r, H, W) with r = 2, got 1x6x4x6");
  EXPECT_EQ(message_of([&] { pixel_unshuffle(image, 4); }), "pixel_unshuffle: expected (N, C, H r, W r) with r = 4, got 1x6x4x6");
  EXPECT_EQ(message_of([&] { pixel_unshuffle(image, 0); }), "pixel_unshuffle: expected (N, C, H r, W r) with r = 0, got 1x6x4x6");
}

TEST(Rearrange, OfNothing) {
  Graph graph;
  const Value x = graph.input("x", {0, 3});
  EXPECT_EQ(flip(x, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(flip(x, 1).shape(), (Shape{0, 3}));
  EXPECT_EQ(roll(x, 5, 0), x);
  EXPECT_EQ(tile(x, {2, 0}).shape(), (Shape{0, 0}));
  EXPECT_TRUE(split(x, 2, 0).empty());
}

TEST(PaddingModes, RefuseMoreThanTheAxisHas) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] {
              pad(x, {0, 3}, {0, 0}, PaddingMode::reflect);
            }),
            "pad: axis 1 of 3 cannot be padded by 3 before and 0 after (input 2x3)");
  EXPECT_EQ(message_of([&] {
              pad(x, {0, 0}, {0, 4}, PaddingMode::circular);
            }),
            "pad: axis 1 of 3 cannot be padded by 0 before and 4 after (input 2x3)");
  EXPECT_EQ(message_of([&] {
              pad(x, {0, -1}, {0, 0}, PaddingMode::replicate);
            }),
            "pad: axis 1 of 3 cannot be padded by -1 before and 0 after (input 2x3)");
  EXPECT_EQ(message_of([&] {
              pad(x, {1}, {0, 0}, PaddingMode::reflect);
            }),
            "pad: expected 2 sizes before and after, got 1 and 2 (input 2x3)");
  EXPECT_EQ(message_of([&] {
              ops::emit_one("pad", {x}, ops::PadAttributes{{0, 1}, {0, 0}, 0, {}, "mirror"});
            }),
            "pad: mode must be constant, reflect, replicate or circular, got \"mirror\"");
}

TEST(PaddingModes, PadNothingWithoutAnOperator) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(pad(x, {0, 0}, {0, 0}, PaddingMode::reflect), x);
}

TEST(PaddingModes, GradientsHaveTheMarginsThatPaddingMade) {
  Graph graph;
  const Value x = graph.input("x", {2, 5});
  const auto backward = [&](const Dims& before, const Dims& after, const char* mode) {
    return message_of([&] { ops::emit_one("pad_backward", {x}, ops::PadBackwardAttributes{before, after, mode}); });
  };
  EXPECT_EQ(backward({0, 2}, {0, 1}, "reflect"), "pad_backward: axis 1 of 5 has no margins of 2 before and 1 after (gradient 2x5)");
  EXPECT_EQ(backward({0, 3}, {0, 2}, "replicate"), "pad_backward: axis 1 of 5 has no margins of 3 before and 2 after (gradient 2x5)");
  EXPECT_EQ(backward({0, -1}, {0, 0}, "circular"), "pad_backward: axis 1 of 5 has no margins of -1 before and 0 after (gradient 2x5)");
  EXPECT_EQ(backward({0, INT64_MAX}, {0, INT64_MAX}, "replicate"),
            "pad_backward: axis 1 of 5 has no margins of 9223372036854775807 before and 9223372036854775807 after (gradient 2x5)");
  EXPECT_EQ(backward({1}, {0, 0}, "reflect"), "pad_backward: expected 2 sizes before and after, got 1 and 2 (input 2x5)");
  EXPECT_EQ(backward({0, 0}, {0, 0}, "constant"), "pad_backward: mode must be reflect, replicate or circular, got \"constant\"");
}

TEST(Rearrange, GradientsAgreeWithDifferences) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 5}, DType::f64);
  const Value padded = pad(roll(flip(x, 2), 2, 2), {0, 0, 2}, {0, 0, 3}, PaddingMode::reflect);
  const Value y = resize(padded, {.scale_factor = {0.7}, .mode = ResizeMode::cubic}) + resize(x, {.size = {7}, .mode = ResizeMode::linear});
  graph.output("y", cumulative_sum(y, 2) * y);
  const Tensor values = Tensor::from<double>({1, -2, 3, 0.5, 4, 1, 1, -1, 2, 0.25}, {1, 2, 5});
  for (const GradientCheckResult& result : check_gradients(graph, {{"x", values}}, std::make_shared<State>())) {
    EXPECT_TRUE(result.passed()) << result.first_failure;
  }
}

}  // namespace
}  // namespace frit
