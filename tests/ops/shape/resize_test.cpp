#include "frit/ops/shape/resize.h"

#include <map>

#include "frit/core/random.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/shape/resize_axis.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

using ops::ResizeAttributes;
using ops::ResizeAxis;

TEST(Resize, RefusesWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 4, 6});
  EXPECT_EQ(message_of([&] { resize(x, {}); }), "resize: one of size and scale_factor is needed, got none");
  EXPECT_EQ(message_of([&] { resize(x, {.size = {2}, .scale_factor = {2}}); }), "resize: one of size and scale_factor is needed, got both");
  EXPECT_EQ(message_of([&] { resize(x, {.size = {2}, .align_corners = true}); }), "resize: align_corners does not go with nearest");
  EXPECT_EQ(message_of([&] { resize(x, {.size = {2, 2, 2}}); }), "resize: size has 3 numbers, expected 1 or 2 (input 1x2x4x6)");
  EXPECT_EQ(message_of([&] { resize(x, {.scale_factor = {1, -2}}); }), "resize: scale_factor must be above 0, got -2");
  EXPECT_EQ(message_of([&] { resize(x, {.scale_factor = {0.1}}); }), "resize: axis 2 of 4 cannot become 0 (input 1x2x4x6)");
  EXPECT_EQ(message_of([&] { resize(x, {.size = {INT64_MAX}, .mode = ResizeMode::linear}); }),
            "resize: axis 2 of 4 cannot become 9223372036854775807 (input 1x2x4x6)");
  EXPECT_EQ(message_of([&] {
              resize(graph.input("y", {2, 3}), {.size = {2}});
            }),
            "resize: input must be (N, C, ...) with 1 to 3 image axes, got 2x3");
}

TEST(Resize, RefusesAttributesThatDoNotFit) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 4, 6});
  const auto refusal = [&](const ResizeAttributes& attributes, const char* op = "resize") {
    return message_of([&] { ops::emit_one(op, {x}, attributes); });
  };
  EXPECT_EQ(refusal({.from = {4, 6}, .to = {2}}), "resize: expected the sizes of 1 to 3 image axes before and after, got 4x6 and 2");
  EXPECT_EQ(refusal({}), "resize: expected the sizes of 1 to 3 image axes before and after, got scalar and scalar");
  EXPECT_EQ(refusal({.from = {4, 6}, .to = {2, 0}}), "resize: image axes must have 1 to 2^30 elements, got 4x6 and 2x0");
  EXPECT_EQ(refusal({.from = {4, 6}, .to = {2, 3}, .step = {1, inf, 1}}), "resize: steps, offsets and cubic must be finite, got inf");
  EXPECT_EQ(refusal({.from = {4, 6}, .to = {2, 3}, .mode = "area"}), "resize: mode must be nearest, linear or cubic, got \"area\"");
  EXPECT_EQ(refusal({.from = {4, 5}, .to = {2, 3}}), "resize: expected (N, C, ...) with image axes of 4x5, got 1x2x4x6");
  EXPECT_EQ(refusal({.from = {4, 6}, .to = {2, 3}}, "resize_backward"),
            "resize_backward: expected (N, C, ...) with image axes of 2x3, got 1x2x4x6");
}

TEST(Resize, IsOneOperator) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 4, 6});
  EXPECT_EQ(resize(x, {.size = {4, 6}, .mode = ResizeMode::cubic}), x);
  EXPECT_EQ(resize(x, {.scale_factor = {1}}), x);
  for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic}) {
    const std::size_t nodes = graph.nodes().size();
    EXPECT_EQ(resize(x, {.scale_factor = {2, 0.5}, .mode = mode}).shape(), (Shape{1, 2, 8, 3}));
    ASSERT_EQ(graph.nodes().size(), nodes + 1);
    EXPECT_EQ(graph.nodes().back().op->name, "resize");
  }
  EXPECT_EQ(resize(graph.input("pooled", {1, 2, 1, 1}), {.size = {3, 5}, .mode = ResizeMode::linear}).shape(), (Shape{1, 2, 3, 5}));
  EXPECT_NE(graph.nodes().back().op->name, "resize") << "one element is repeated";
}

TEST(Resize, IsForTheImagesThatItWasMadeFor) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 6});
  graph.output("y", resize(x, {.size = {9}, .mode = ResizeMode::linear}));
  graph.output("repeated", resize(slice(x, 2, 0, 1), {.size = {4}}));
  Program program(graph, std::make_shared<State>());
  const graph::Executable& run = program.run({{"x", Tensor::zeros({5, 3, 6})}});
  EXPECT_EQ(run.output("y").shape(), (Shape{5, 3, 9}));
  EXPECT_EQ(run.output("repeated").shape(), (Shape{5, 3, 4}));
  EXPECT_EQ(message_of([&] {
              program.run({{"x", Tensor::zeros({2, 3, 12})}});
            }),
            "resize: expected (N, C, ...) with image axes of 6, got 2x3x12");
}

Tensor line(const std::vector<double>& values) { return Tensor::from(values, {1, 1, static_cast<std::int64_t>(values.size())}); }

/// Attributes of one image axis.
ResizeAttributes along(std::int64_t from, std::int64_t to, double step, double offset, const char* mode) {
  ResizeAttributes attributes{.mode = mode};
  attributes.add_axis(from, to, step, offset);
  return attributes;
}

std::vector<double> resized(const std::vector<double>& values, const ResizeAttributes& attributes) {
  return evaluate([&](const Values& v) { return ops::emit_one("resize", {v[0]}, attributes); }, {line(values)}).output;
}

TEST(Resize, TakesAnyStepAndOffset) {
  const std::vector<double> x = {0, 10, 20, 30};
  EXPECT_EQ(resized(x, along(4, 5, 0.5, 0.25, "linear")), (std::vector<double>{2.5, 7.5, 12.5, 17.5, 22.5}));
  EXPECT_EQ(resized(x, along(4, 4, -2, 4.5, "linear")), (std::vector<double>{30, 25, 5, 0})) << "mirrored, and beyond both ends";
  EXPECT_EQ(resized(x, along(4, 3, 0, 1.75, "linear")), (std::vector<double>{17.5, 17.5, 17.5}));
  EXPECT_EQ(resized(x, along(4, 6, 0.5, 0, "nearest")), (std::vector<double>{0, 0, 10, 10, 20, 20}));
  ResizeAttributes up = along(4, 6, 0.5, 0, "nearest");
  up.round_up = true;
  EXPECT_EQ(resized(x, up), (std::vector<double>{0, 10, 10, 20, 20, 30}));
  EXPECT_EQ(resized(x, along(4, 2, 1e300, -1e300, "nearest")), (std::vector<double>{0, 0}));
  EXPECT_EQ(resized(x, along(4, 2, 1e300, 1e300, "cubic")), (std::vector<double>{30, 30}));
  // Keys' weights at a half with a = -0.75: -0.09375, 0.59375, 0.59375, -0.09375.
  EXPECT_EQ(resized(x, along(4, 2, 1, 0.5, "cubic")), (std::vector<double>{-0.09375 * 20 + 0.59375 * 10, 15}));
  ResizeAttributes inside = along(4, 1, 1, 0.5, "cubic");
  inside.exclude_outside = true;
  EXPECT_NEAR(resized(x, inside)[0], (-0.09375 * 20 + 0.59375 * 10) / 1.09375, 1e-15);
}

/// What is not finite stays with the elements that read it.
TEST(Resize, OneNanStaysWhereItIs) {
  const std::map<ResizeMode, std::vector<std::vector<std::size_t>>> readers = {
      // of elements 0, 2 and 4 of 5 that become 10
      {ResizeMode::nearest, {{0, 1}, {4, 5}, {8, 9}}},
      {ResizeMode::linear, {{0, 1, 2}, {3, 4, 5, 6}, {7, 8, 9}}},
      {ResizeMode::cubic, {{0, 1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, {5, 6, 7, 8, 9}}}};
  for (const auto& [mode, expected] : readers) {
    const auto function = [wanted = mode](const Values& v) { return resize(v[0], {.size = {10}, .mode = wanted}); };
    for (const double special : {nan, inf}) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        std::vector<double> x(5, 1);
        x[2 * i] = special;
        const std::vector<double> y = evaluate(function, {line(x)}).output;
        for (std::size_t o = 0; o < y.size(); ++o) {
          const bool reads = std::find(expected[i].begin(), expected[i].end(), o) != expected[i].end();
          EXPECT_EQ(std::isfinite(y[o]), !reads) << ops::name_of(mode) << " element " << 2 * i << " at " << o;
        }
      }
    }
  }
  // Neither does it reach neighbours along an axis that stays.
  Tensor image = Tensor::full({1, 1, 3, 4}, 1, DType::f64);
  image.slice(2, 1, 2).fill(nan);
  const auto wider = [](const Values& v) { return resize(v[0], {.size = {3, 8}, .mode = ResizeMode::linear}); };
  const std::vector<double> y = evaluate(wider, {image}).output;
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 8 != 1) << i;
}

TEST(Resize, TheGradientOfAMuchSmallerImageIsTakenAxisByAxis) {
  const Shape image = {2, 3, 2, 3};
  for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic}) {
    for (const auto& [size, passes] : {std::pair{Dims{8, 24}, 1}, {Dims{16, 24}, 2}, {Dims{2, 3000}, 1}}) {
      Graph graph;
      const Value x = graph.input("x", image, DType::f64), y = resize(x, {.size = size, .mode = mode});
      const ops::Attributes attributes = graph.nodes().back().attributes;
      const Value seed = graph.input("seed", y.shape(), DType::f64);
      const std::size_t nodes = graph.nodes().size();
      graph.output("gradient", gradient(std::span(&y, 1), std::span(&seed, 1), std::span(&x, 1))[0]);
      EXPECT_EQ(graph.nodes().size() - nodes, static_cast<std::size_t>(passes)) << ops::name_of(mode) << ' ' << size;
      graph.output("at once", ops::emit_one("resize_backward", {seed}, attributes));
      const Tensor seeds = Tensor::empty(y.shape(), DType::f64);
      fill_normal(seeds, 0, 1, /*seed=*/1, /*stream=*/0);
      Program program(graph, std::make_shared<State>());
      const graph::Executable& run = program.run({{"x", Tensor::zeros(image, DType::f64)}, {"seed", seeds}});
      const std::vector<double> found = run.output("gradient").to_vector<double>(), expected = run.output("at once").to_vector<double>();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-11) << ops::name_of(mode) << ' ' << size;
    }
  }
}

TEST(Resize, WhatNothingReadsHasNoGradient) {
  const auto function = [](const Values& v) { return resize(v[0], {.size = {2}}); };
  EXPECT_EQ(evaluate(function, {line({1, 2, 3, 4, 5, 6})}, inf).gradients[0], (std::vector<double>{inf, 0, 0, inf, 0, 0}));
}

/// The readers of all elements are the taps of all places, turned round.
template <ResizeMode mode, class C>
void expect_readers_to_be_taps(const ResizeAxis& axis) {
  std::map<std::pair<int, int>, C> weights;  // of (element, place)
  for (int place = 0; place < axis.to; ++place) {
    const ops::ResizeTaps<mode, C> taps(axis, place);
    for (int k = 0; k < taps.count(); ++k) weights[{taps.element(k), place}] += taps.weight(k);
  }
  std::erase_if(weights, [](const auto& entry) { return entry.second == 0; });
  for (int element = 0; element < axis.from; ++element) {
    const ops::ResizeReaders<mode, C> readers(axis, element);
    for (int k = 0; k < readers.count(); ++k) {
      const auto found = weights.find({element, readers.element(k)});
      EXPECT_EQ(readers.weight(k), found == weights.end() ? 0 : found->second) << element << " in " << readers.element(k);
      if (found != weights.end()) weights.erase(found);
    }
  }
  EXPECT_TRUE(weights.empty()) << weights.size() << " are missed, the first of element " << weights.begin()->first.first << " in "
                               << weights.begin()->first.second;
}

template <ResizeMode mode>
void expect_readers_to_be_taps(const ResizeAxis& axis) {
  SCOPED_TRACE(concat(ops::name_of(mode), ": ", axis.from, " to ", axis.to, " at ", axis.step, " * i + ", axis.offset));
  expect_readers_to_be_taps<mode, double>(axis);
  expect_readers_to_be_taps<mode, float>(axis);
}

TEST(Resize, ReadersAreTheTapsTurnedRound) {
  for (std::uint32_t trial = 0; trial < 2000; ++trial) {
    const auto random = philox(/*seed=*/5, trial, 0);
    ResizeAxis axis;
    axis.from = 1 + static_cast<int>(random[0] % (trial % 10 == 0 ? 3000 : 12));
    axis.to = 1 + static_cast<int>(random[1] % (trial % 7 == 0 ? 300 : 40));
    const double from = axis.from, to = axis.to;
    switch (trial % 6) {
      case 0: axis.step = static_cast<float>(from / to); break;
      case 1: axis.step = from / to, axis.offset = 0.5 * axis.step - 0.5; break;
      case 2: axis.step = to > 1 ? (from - 1) / (to - 1) : 0; break;
      case 3: axis.step = 1, axis.offset = -static_cast<double>(random[2] % 8); break;
      default: axis.step = random[2] * 4e-9 * from / to - 5, axis.offset = random[3] * 4e-9 * from - 3;
    }
    axis.round_up = trial % 2 == 0;
    axis.exclude_outside = trial % 3 == 0;
    expect_readers_to_be_taps<ResizeMode::nearest>(axis);
    expect_readers_to_be_taps<ResizeMode::linear>(axis);
    expect_readers_to_be_taps<ResizeMode::cubic>(axis);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace frit
