#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/chain/chain_checks.h"

namespace frit::logsumexp_sigmoid_scale_subtract_clamp_test {
namespace {

using ChainAttributes = ops::LogsumexpSigmoidScaleSubtractClampAttributes;

constexpr const char* chain = "logsumexp_sigmoid_scale_subtract_clamp";

std::vector<Tensor> normal_inputs(const Shape& shape, DType dtype, double deviation = 1) {
  return {normal_tensor(shape, dtype, 1, 0, deviation), Tensor::full({1, 1, 1}, 0.125, dtype)};
}

TEST(LogsumexpSigmoidScaleSubtractClamp, EqualsTheChainAtAnyShape) {
  for (const Shape& shape : {Shape{2, 16, 5, 13, 31}, Shape{1, 7, 3, 11}, Shape{3, 3, 1023}, Shape{2, 5, 1024}, Shape{1, 4, 1025},
                             Shape{2, 1, 9, 9}, Shape{2, 33, 70}, Shape{1, 4000, 3}, Shape{0, 4, 2, 2}, Shape{2, 4, 0, 3}}) {
    for (const double deviation : {1.0, 30.0}) {
      SCOPED_TRACE(concat(shape, " deviation ", deviation));
      const ChainAttributes attributes{-5, 4};
      expect_like_decomposed(chain, attributes, normal_inputs(shape, DType::f64, deviation), 1e-14, 1e-12);
      expect_accurate(chain, attributes, normal_inputs(shape, DType::f32, deviation), 1e-6, 5e-6);
    }
  }
}

TEST(LogsumexpSigmoidScaleSubtractClamp, ExtremeRowsGiveWhatTheChainGives) {
  // A row is the channels of one pixel.
  const std::vector<std::vector<double>> rows = {
      {-inf, -inf, -inf}, {-inf, 0, -inf}, {inf, 0, 1},     {inf, inf, inf},          {inf, -inf, 0},
      {nan, 0, 1},        {0, nan, inf},   {1e30, 0, 1},    {-1e30, -1e30, -1e30},    {1e8, 1e8, -1e8},
      {0, 0, 0},          {88, 89, 90},    {-3, -104, -90}, {3.4e38, 3.4e38, 3.4e38}, {-1e-40, 1e-40, 0}};
  std::vector<double> values;
  for (std::size_t c = 0; c < 3; ++c) {
    for (const auto& row : rows) values.push_back(row[c]);
  }
  const auto pixels = static_cast<std::int64_t>(rows.size());
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const ChainAttributes& attributes : {ChainAttributes{-1, 1}, ChainAttributes{-9, std::nullopt}, ChainAttributes{std::nullopt, 9},
                                              ChainAttributes{1, -1}, ChainAttributes{nan, 1}}) {
      SCOPED_TRACE(concat(dtype, ' ', fields_text(attributes)));
      const std::vector<Tensor> inputs = {Tensor::from(values, {1, 3, pixels}).to(dtype), Tensor::full({1}, 0.5, dtype)};
      expect_like_decomposed(chain, attributes, inputs, dtype == DType::f64 ? 1e-15 : 1e-6, dtype == DType::f64 ? 1e-15 : 1e-6);
    }
  }
}

TEST(LogsumexpSigmoidScaleSubtractClamp, WeightsSumToOneAtAnyMagnitude) {
  // logsumexp of equal numbers far up: the slope of y sigmoid(y + 3) / 6 is 1/6, and each of the two has half of it.
  for (const double magnitude : {1e2, 1e8, 1e30}) {
    const std::vector<Tensor> inputs = {Tensor::full({1, 2, 1}, magnitude), Tensor::zeros({1})};
    const ChainResults results = run_chain(chain, ChainAttributes{0, std::nullopt}, inputs, false, Tensor::full({1, 1, 1}, 1));
    EXPECT_TRUE(close(results.gradients[0], Tensor::full({1, 2, 1}, 1.0 / 12), 1e-7)) << magnitude;
  }
}

TEST(LogsumexpSigmoidScaleSubtractClamp, SaturatedPixelsHaveNoGradientAtAll) {
  std::vector<Tensor> inputs = normal_inputs({2, 8, 3, 50}, DType::f32);
  inputs[1].fill(100);
  const ChainResults results = run_chain(chain, ChainAttributes{-1, 1}, inputs, false);
  EXPECT_EQ(results.output.to_vector<double>(), std::vector<double>(300, -1.0));
  EXPECT_EQ(results.gradients[0].to_vector<double>(), std::vector<double>(2400, 0.0));
  EXPECT_EQ(results.gradients[1].item(), 0);
}

TEST(LogsumexpSigmoidScaleSubtractClamp, GradientPassesAtTheBounds) {
  // y = 0 gives 0, exactly the bound.
  const std::vector<Tensor> inputs = {Tensor::zeros({1, 1, 4}), Tensor::zeros({1, 1})};
  for (const ChainAttributes& attributes : {ChainAttributes{0, 1}, ChainAttributes{-1, 0}, ChainAttributes{0, 0}}) {
    const ChainResults results = run_chain(chain, attributes, inputs, false, Tensor::full({1, 1, 4}, 2));
    EXPECT_EQ(results.gradients[1].item(), -8);
  }
}

TEST(LogsumexpSigmoidScaleSubtractClamp, BitsDoNotDependOnTheThreads) {
  for (const Shape& shape : {Shape{1, 16, 61, 67}, Shape{5, 3, 2049}}) {
    expect_equal_for_any_thread_count(chain, ChainAttributes{-0.5, 0.5}, normal_inputs(shape, DType::f32));
  }
}

TEST(LogsumexpSigmoidScaleSubtractClamp, IsFoundInAModel) {
  const auto build = [](double shift, double divisor, bool swapped) {
    Graph graph;
    const Value x = graph.input("x", {2, 4, 3, 5, 5}), bias = graph.input("bias", {1, 1, 1, 1});
    Value y = logsumexp(x, {1}, true);
    y = swapped ? sigmoid(shift + y) * y / divisor : y * sigmoid(y + shift) / divisor;
    graph.output("y", clamp(y - bias, -1, 1));
    return fused_nodes(graph, chain);
  };
  EXPECT_EQ(build(3, 6, false), 1u);
  EXPECT_EQ(build(3, 6, true), 1u);
  EXPECT_EQ(build(3, 5, false), 0u);
  EXPECT_EQ(build(2, 6, false), 0u);
}

TEST(LogsumexpSigmoidScaleSubtractClamp, RefusesBadCalls) {
  const auto message = [&](const std::vector<Shape>& shapes) { return refusal(chain, ChainAttributes{-1, 1}, shapes); };
  EXPECT_EQ(message({{4, 3}, {1}}), "logsumexp_sigmoid_scale_subtract_clamp: expected an input (N, C, ...) of rank 3 or more, got 4x3");
  EXPECT_EQ(message({{4, 0, 3}, {1}}), "logsumexp_sigmoid_scale_subtract_clamp: input 4x0x3 has no channels");
  EXPECT_EQ(message({{4, 3, 3}, {3}}), "logsumexp_sigmoid_scale_subtract_clamp: bias must be one f32, got f32 3");
}

}  // namespace
}  // namespace frit::logsumexp_sigmoid_scale_subtract_clamp_test
