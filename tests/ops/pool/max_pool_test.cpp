#include "frit/core/random.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/pool/pool.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

struct Pooled {
  std::vector<double> output, indices;
};

Pooled pool(const char* op, const Tensor& x, const PoolOptions& options) {
  const std::vector<Tensor> results = ops::run(op, {x}, options);
  return {results[0].to_vector<double>(), results[1].to_vector<double>()};
}

/// Both precisions, and as many planes as make no difference.
void expect_pooled(const std::vector<double>& x, const Shape& image, const PoolOptions& options, const Pooled& expected) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Shape shape{1, 1};
    for (const std::int64_t size : image) shape.push_back(size);
    const Pooled found = pool(image.rank() == 2 ? "max_pool2d" : "max_pool3d", Tensor::from(x, shape).to(dtype), options);
    EXPECT_TRUE(equal_numbers(found.output, expected.output)) << dtype;
    EXPECT_TRUE(equal_numbers(found.indices, expected.indices)) << dtype;
  }
}

TEST(MaxPool, TakesTheFirstOfEqualMaxima) {
  expect_pooled({2, 2, 1, 1, 3, 3, 3, 0}, {2, 4}, {.kernel_size = {2}}, {{3, 3}, {4, 6}});
  expect_pooled({1, 1, 1, 1}, {2, 2}, {.kernel_size = {2}}, {{1}, {0}});
  expect_pooled({0, 1, 1, 1}, {2, 2}, {.kernel_size = {2}}, {{1}, {1}});
  expect_pooled({-0.0, 0.0, 0.0, -0.0}, {2, 2}, {.kernel_size = {2}}, {{0}, {0}});
  expect_pooled({0, 0, 0, 0, 0, 7, 7, 7}, {2, 2, 2}, {.kernel_size = {2}}, {{7}, {5}});
  expect_pooled({5, 5, 5, 5, 5}, {1, 5}, {.kernel_size = {1, 2}, .stride = {1}}, {{5, 5, 5, 5}, {0, 1, 2, 3}});
}

TEST(MaxPool, TheLastNaNWins) {
  expect_pooled({1, nan, nan, 5, nan, 7, 7, nan}, {2, 4}, {.kernel_size = {2}}, {{nan, nan}, {4, 7}});
  for (std::size_t place = 0; place < 4; ++place) {
    std::vector<double> x{1, inf, -inf, 2};
    x[place] = nan;
    expect_pooled(x, {2, 2}, {.kernel_size = {2}}, {{nan}, {static_cast<double>(place)}});
  }
  expect_pooled({nan, 1, 2, nan, 4, 5, nan, 7}, {2, 2, 2}, {.kernel_size = {2}}, {{nan}, {6}});
}

TEST(MaxPool, AllMinusInfinityTakesTheFirstValidPlace) {
  expect_pooled(std::vector<double>(8, -inf), {2, 4}, {.kernel_size = {2}}, {{-inf, -inf}, {0, 2}});
  // The first elements of the windows lie in the padding, which is never chosen.
  expect_pooled(std::vector<double>(9, -inf), {3, 3}, {.kernel_size = {2}, .padding = {1}}, {std::vector<double>(4, -inf), {0, 1, 3, 4}});
  expect_pooled({-inf, -inf, -inf, -inf, nan, -inf}, {2, 3}, {.kernel_size = {3}, .stride = {1}, .padding = {1}},
                {std::vector<double>(6, nan), std::vector<double>(6, 4)});
  expect_pooled({-5, -6, -7, -8}, {2, 2}, {.kernel_size = {2}, .padding = {1}}, {{-5, -6, -7, -8}, {0, 1, 2, 3}});
  expect_pooled(std::vector<double>(6, -inf), {1, 6}, {.kernel_size = {1, 2}, .stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 3}},
                {{-inf, -inf, -inf}, {2, 1, 3}});
}

/// A dilated window may have its elements on both sides of the image.
TEST(MaxPool, WindowWithoutElementsIsMinusInfinityWithoutAPlace) {
  const PoolOptions options{.kernel_size = {1, 2}, .stride = {1}, .padding = {0, 1}, .dilation = {1, 4}};
  const Tensor x = Tensor::from<double>({7, 8, 9}, {1, 1, 1, 3});
  const Pooled found = pool("max_pool2d", x, options);
  EXPECT_TRUE(equal_numbers(found.output, {-inf}));
  EXPECT_TRUE(equal_numbers(found.indices, {-1}));
  EXPECT_TRUE(equal_numbers(evaluate([&](const Values& v) { return max_pool2d(v[0], options); }, {x}).gradients[0], {0, 0, 0}));
}

TEST(MaxPool, CeilModeLeavesOutWindowsThatBeginInThePadding) {
  const std::vector<double> x{1, 2, 3, 4, 5};
  expect_pooled(x, {1, 5}, {.kernel_size = {1, 2}}, {{2, 4}, {1, 3}});
  expect_pooled(x, {1, 5}, {.kernel_size = {1, 2}, .ceil_mode = true}, {{2, 4, 5}, {1, 3, 4}});
  expect_pooled(x, {1, 5}, {.kernel_size = {1, 2}, .padding = {0, 1}, .ceil_mode = true}, {{1, 3, 5}, {0, 2, 4}});
  expect_pooled({1, 2, 3}, {1, 3}, {.kernel_size = {1, 2}, .stride = {1, 3}, .ceil_mode = true}, {{2}, {1}});
}

TEST(MaxPool, WindowAsLargeAsTheImageAndStrideBeyondTheKernel) {
  expect_pooled({4, 9, 2, 3, 9, 1}, {2, 3}, {.kernel_size = {2, 3}}, {{9}, {1}});
  expect_pooled({1, 2, 9, 3, 4, 9, 5}, {1, 7}, {.kernel_size = {1, 2}, .stride = {1, 3}}, {{2, 4}, {1, 4}});
  expect_pooled({1, 2, 3, 4, 5}, {1, 5}, {.kernel_size = {1, 2}, .stride = {1}, .dilation = {1, 3}}, {{4, 5}, {3, 4}});
}

/// Rows longer than a block of columns, and windows of every alignment.
TEST(MaxPool, LongRowsAgreeWithTheDefinition) {
  const std::int64_t width = 700;
  const Tensor x = Tensor::empty({1, 2, 3, width});
  fill_normal(x, 0, 1, 1, 1);
  for (const std::int64_t stride : {1, 2, 3}) {
    const Pooled found = pool("max_pool2d", x, {.kernel_size = {3}, .stride = {stride}, .padding = {1}});
    const std::int64_t rows = (3 + 2 - 3) / stride + 1, columns = (width + 2 - 3) / stride + 1;
    ASSERT_EQ(found.output.size(), static_cast<std::size_t>(2 * rows * columns));
    for (std::int64_t i = 0; i < 2 * rows * columns; ++i) {
      const std::int64_t row = i / columns % rows, column = i % columns;
      double best = -inf;
      for (std::int64_t h = std::max<std::int64_t>(0, row * stride - 1); h < std::min<std::int64_t>(3, row * stride + 2); ++h) {
        for (std::int64_t w = std::max<std::int64_t>(0, column * stride - 1); w < std::min(width, column * stride + 2); ++w) {
          best = std::max(best, static_cast<double>(x.data<float>()[(i / columns / rows * 3 + h) * width + w]));
        }
      }
      ASSERT_EQ(found.output[static_cast<std::size_t>(i)], best) << "stride " << stride << " element " << i;
    }
  }
}

TEST(MaxPool, OverlappingWindowsAddTheirGradients) {
  const auto pool3 = [](const Values& v) { return max_pool2d(v[0], {.kernel_size = {1, 3}, .stride = {1}}); };
  EXPECT_TRUE(equal_numbers(evaluate(pool3, {Tensor::from<float>({1, 5, 9, 2, 0, 0}, {1, 1, 1, 6})}).gradients[0], {0, 0, 3, 1, 0, 0}));
  const auto ties = [](const Values& v) { return max_pool2d(v[0], {.kernel_size = {2}}); };
  EXPECT_TRUE(equal_numbers(evaluate(ties, {Tensor::full({1, 1, 2, 2}, 4)}).gradients[0], {1, 0, 0, 0}));
  EXPECT_TRUE(equal_numbers(evaluate(ties, {Tensor::from<double>({nan, 1, 2, nan}, {1, 1, 2, 2})}).gradients[0], {0, 0, 0, 1}));
}

/// Clamping and pooling commute in value, not in gradient.
TEST(MaxPool, OrderWithClampMattersToTheGradient) {
  const Tensor x = Tensor::from<float>({1, 5}, {1, 1, 1, 2});
  const PoolOptions options{.kernel_size = {1, 2}};
  const Evaluation pool_first = evaluate([&](const Values& v) { return clamp(max_pool2d(v[0], options), {}, 1); }, {x});
  const Evaluation clamp_first = evaluate([&](const Values& v) { return max_pool2d(clamp(v[0], {}, 1), options); }, {x});
  EXPECT_TRUE(equal_numbers(pool_first.output, clamp_first.output));
  EXPECT_TRUE(equal_numbers(pool_first.gradients[0], {0, 0}));
  EXPECT_TRUE(equal_numbers(clamp_first.gradients[0], {1, 0}));
}

TEST(MaxPool, EmptyBatch) {
  const Evaluation found =
      evaluate([](const Values& v) { return max_pool3d(v[0], {.kernel_size = {2}}); }, {Tensor::empty({0, 3, 4, 4, 4})});
  EXPECT_TRUE(found.output.empty());
}

TEST(MaxPool, ShortFormsOfTheOptionsAreTheLongOne) {
  Graph graph;
  const Value x = graph.input("x", {1, 1, 6, 6});
  const auto attributes = [&](const PoolOptions& options) { return graph.producer(max_pool2d(x, options).id()).attributes; };
  const ops::Attributes full = PoolOptions{.kernel_size = {2, 2}, .stride = {2, 2}, .padding = {0, 0}, .dilation = {1, 1}};
  EXPECT_EQ(attributes({.kernel_size = {2}}), full);
  EXPECT_EQ(attributes({.kernel_size = {2, 2}, .padding = {0}}), full);
  EXPECT_EQ(attributes({.kernel_size = {2}, .stride = {2}, .dilation = {1}, .count_include_pad = false}), full);
}

TEST(MaxPool, RefusesBadCalls) {
  Graph graph;
  int count = 0;
  const auto message = [&](const Shape& input, const PoolOptions& options, bool three_dimensional = false) {
    const Value x = graph.input(concat(count++), input);
    return message_of([&] { three_dimensional ? max_pool3d(x, options) : max_pool2d(x, options); });
  };
  EXPECT_EQ(message({1, 1, 5, 5}, {.kernel_size = {2}, .padding = {2}}),
            "max_pool2d: padding must be at most half of kernel_size, got padding 2x2 and kernel_size 2x2");
  EXPECT_EQ(message({1, 1, 5, 5}, {.kernel_size = {3}, .padding = {-1}}), "max_pool2d: padding must be in [0, 2^31), got -1x-1");
  EXPECT_EQ(message({1, 1, 5, 5}, {.kernel_size = {2}, .stride = {0}}), "max_pool2d: stride must be in [1, 2^31), got 0x0");
  EXPECT_EQ(message({1, 1, 5, 5}, {.kernel_size = {2, 0}}), "max_pool2d: kernel_size must be in [1, 2^31), got 2x0");
  EXPECT_EQ(message({1, 1, 5, 5}, {.kernel_size = {2}, .dilation = {0}}), "max_pool2d: dilation must be in [1, 2^31), got 0x0");
  EXPECT_EQ(message({1, 1, 5, 5}, {}), "max_pool2d: kernel_size has 0 numbers, expected 1 or 2");
  EXPECT_EQ(message({1, 1, 5, 5}, {.kernel_size = {2, 2, 2}}), "max_pool2d: kernel_size has 3 numbers, expected 1 or 2");
  EXPECT_EQ(message({1, 1, 2, 2}, {.kernel_size = {3}}),
            "max_pool2d: output size 0x0 is too small (input 1x1x2x2, kernel_size 3x3, stride 3x3, padding 0x0, dilation 1x1)");
  EXPECT_EQ(message({2, 0, 4, 4}, {.kernel_size = {2}}), "max_pool2d: only the batch may be empty, got input 2x0x4x4");
  EXPECT_EQ(message({2, 3, 4, 0}, {.kernel_size = {1}}), "max_pool2d: only the batch may be empty, got input 2x3x4x0");
  EXPECT_EQ(message({3, 4, 4}, {.kernel_size = {2}}), "max_pool2d: expected input (N, C, H, W), got 3x4x4");
  EXPECT_EQ(message({3, 4, 4, 4}, {.kernel_size = {2}}, true), "max_pool3d: expected input (N, C, D, H, W), got 3x4x4x4");
  EXPECT_EQ(message({1, 1, 65536, 32768}, {.kernel_size = {2}}),
            "max_pool2d: an image must have less than 2^31 elements, got input 1x1x65536x32768");
}

TEST(MaxPool, KernelFarLargerThanTheImage) {
  const PoolOptions options{.kernel_size = {2'000'000'001}, .stride = {1}, .padding = {1'000'000'000}};
  expect_pooled({1, 4, 2, 3}, {2, 2}, options, {{4, 4, 4, 4}, {1, 1, 1, 1}});
}

}  // namespace
}  // namespace frit
