#include "frit/ops/operator/run.h"
#include "frit/ops/pool/pool_geometry.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

/// Of an image of one row.
Evaluation pooled(const std::vector<double>& x, const PoolOptions& options, DType dtype = DType::f64) {
  const Tensor input = Tensor::from(x, {1, 1, 1, static_cast<std::int64_t>(x.size())}).to(dtype);
  return evaluate([&](const Values& v) { return avg_pool2d(v[0], options); }, {input});
}

TEST(AvgPool, DividesByThePaddingToo) {
  const PoolOptions options{.kernel_size = {1, 4}, .stride = {1, 3}, .padding = {0, 2}};
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Evaluation found = pooled({4, 8, 12, 16}, options, dtype);
    EXPECT_TRUE(equal_numbers(found.output, {3, 9})) << dtype;
    EXPECT_TRUE(equal_numbers(found.gradients[0], {0.25, 0.5, 0.25, 0.25})) << dtype;
  }
}

TEST(AvgPool, OrByTheImageAlone) {
  const PoolOptions options{.kernel_size = {1, 4}, .stride = {1, 3}, .padding = {0, 2}, .count_include_pad = false};
  const Evaluation found = pooled({4, 8, 12, 16}, options);
  EXPECT_TRUE(equal_numbers(found.output, {6, 12}));
  EXPECT_TRUE(equal_numbers(found.gradients[0], {0.5, 0.5 + 1.0 / 3, 1.0 / 3, 1.0 / 3}));
}

/// What ceil_mode adds beyond image and padding is never counted.
TEST(AvgPool, CeilModeCountsOnlyWhatIsThere) {
  EXPECT_TRUE(equal_numbers(pooled({2, 4, 6}, {.kernel_size = {1, 2}, .ceil_mode = true}).output, {3, 6}));
  const PoolOptions padded{.kernel_size = {1, 3}, .stride = {1, 3}, .padding = {0, 1}, .ceil_mode = true};
  EXPECT_TRUE(equal_numbers(pooled({3, 6, 9, 12}, padded).output, {3, 7}));
  EXPECT_TRUE(equal_numbers(pooled({3, 6, 9, 12, 15, 18}, padded).output, {3, 12, 9}));
}

TEST(AvgPool, NaNAndInfinityStayInTheirWindows) {
  EXPECT_TRUE(equal_numbers(pooled({nan, 1, 2, 4, inf, -inf}, {.kernel_size = {1, 2}}).output, {nan, 3, nan}));
}

TEST(AvgPool, ManySmallNumbersAreSummedInDouble) {
  const Tensor x = Tensor::full({1, 1, 1000, 1000}, 0.1);
  const Tensor y = ops::run("avg_pool2d", {x}, PoolOptions{.kernel_size = {1000}})[0];
  EXPECT_EQ(y.item(), static_cast<double>(0.1f));
}

TEST(AvgPool, GlobalIsTheMeanOverAllImageAxes) {
  const auto global = [](const Values& v) { return global_avg_pool(v[0]); };
  Graph graph;
  EXPECT_EQ(global_avg_pool(graph.input("x", {2, 3, 4, 5, 6})).shape(), (Shape{2, 3, 1, 1, 1}));
  const Evaluation found = evaluate(global, {Tensor::from<double>({1, 3, 5, 7, 10, 10, 10, 14}, {1, 2, 2, 2})});
  EXPECT_TRUE(equal_numbers(found.output, {4, 11}));
  EXPECT_TRUE(equal_numbers(found.gradients[0], std::vector<double>(8, 0.25)));
  EXPECT_EQ(message_of([&] {
              global_avg_pool(graph.input("y", {2, 3}));
            }),
            "global_avg_pool: expected input (N, C, ...) with image axes, got 2x3");
}

/// Linear: the gradient of the gradient is the pooling itself.
TEST(AvgPool, IsDifferentiableTwice) {
  const PoolOptions options{.kernel_size = {1, 2}, .stride = {1}};
  const auto gradient_of = [&](const Values& v) {
    const Value y = avg_pool2d(v[0], options);
    return gradient(std::span(&y, 1), std::span(&v[1], 1), std::span(&v[0], 1))[0];
  };
  const Evaluation found =
      evaluate(gradient_of, {Tensor::from<double>({5, 6, 7}, {1, 1, 1, 3}), Tensor::from<double>({2, 4}, {1, 1, 1, 2})});
  EXPECT_TRUE(equal_numbers(found.output, {1, 3, 2}));
  EXPECT_TRUE(equal_numbers(found.gradients[0], {0, 0, 0}));
  EXPECT_TRUE(equal_numbers(found.gradients[1], {1, 1}));
}

TEST(AvgPool, RefusesBadCalls) {
  Graph graph;
  const Value x = graph.input("x", {1, 1, 5, 5});
  const auto message = [&](const PoolOptions& options) { return message_of([&] { avg_pool2d(x, options); }); };
  EXPECT_EQ(message({.kernel_size = {2}, .dilation = {2}}), "avg_pool2d: dilation must be 1, got 2x2");
  EXPECT_EQ(message({.kernel_size = {2}, .padding = {2}}),
            "avg_pool2d: padding must be at most half of kernel_size, got padding 2x2 and kernel_size 2x2");
  EXPECT_EQ(message({.kernel_size = {2}, .stride = {0}}), "avg_pool2d: stride must be in [1, 2^31), got 0x0");
  EXPECT_EQ(message({.kernel_size = {6}}),
            "avg_pool2d: output size 0x0 is too small (input 1x1x5x5, kernel_size 6x6, stride 6x6, padding 0x0, dilation 1x1)");
  EXPECT_EQ(message_of([&] { avg_pool3d(x, {.kernel_size = {2}}); }), "avg_pool3d: expected input (N, C, D, H, W), got 1x1x5x5");
}

/// Fewer channels than a vector has elements, and some more.
TEST(AvgPool, TakesAnyNumberOfChannels) {
  const PoolOptions options{.kernel_size = {3}, .stride = {2}, .padding = {1}};
  for (const std::int64_t channels : {1, 3, 5, 12, 20}) {
    Tensor x = Tensor::empty({2, channels, 7, 9});
    for (std::int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(9 * (i * i % 101));  // sums and means are exact
    const Tensor y = ops::run("avg_pool2d", {x}, options)[0];
    EXPECT_TRUE(near(ops::run("avg_pool2d", {x.contiguous(Layout::channels_last)}, options)[0], y, 1e-6, 1000)) << channels;
    const ops::PoolBackwardAttributes backward{options, {7, 9}};
    const Tensor dx = ops::run("avg_pool2d_backward", {y}, backward)[0];
    EXPECT_TRUE(near(ops::run("avg_pool2d_backward", {y.contiguous(Layout::channels_last)}, backward)[0], dx, 1e-6, 1000)) << channels;
  }
}

}  // namespace
}  // namespace frit
