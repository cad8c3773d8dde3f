#include "frit/core/random.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

using ops::BatchNormAttributes;

/// Each a value a channel: weight, bias, running mean, running variance.
std::vector<Tensor> parameters(DType dtype = DType::f64) {
  return {Tensor::from<double>({1, 2}, {2}).to(dtype), Tensor::from<double>({0, 10}, {2}).to(dtype),
          Tensor::from<double>({0, 4}, {2}).to(dtype), Tensor::from<double>({1, 3}, {2}).to(dtype)};
}

std::vector<Tensor> run(const Tensor& x, const std::vector<Tensor>& parameters, const BatchNormAttributes& attributes) {
  return ops::run("batch_norm", {x, parameters[0], parameters[1], parameters[2], parameters[3]}, attributes);
}

TEST(BatchNorm, RefusesBadCalls) {
  Graph graph;
  auto variable = [&, count = 0](const Shape& shape, DType dtype = DType::f32) mutable {
    return graph.variable(concat(count++), {dtype, shape}, [](const Tensor&, std::uint64_t) {});
  };
  const auto message = [&](const Shape& x, std::int64_t channels, const BatchNormOptions& options = {}) {
    return message_of(
        [&] { batch_norm(variable(x), variable({channels}), variable({channels}), variable({channels}), variable({channels}), options); });
  };
  EXPECT_EQ(message({1, 2, 1, 1}, 2), "batch_norm: expected more than 1 value per channel when training, got input 1x2x1x1");
  EXPECT_EQ(message({1, 2}, 2), "batch_norm: expected more than 1 value per channel when training, got input 1x2");
  EXPECT_EQ(message({3}, 2), "batch_norm: expected input (N, C, ...), got 3");
  EXPECT_EQ(message({2, 3, 4}, 2), "batch_norm: weight must have shape 3, got 2 (input 2x3x4)");
  EXPECT_EQ(message({2, 2, 4}, 2, {.momentum = 2}), "batch_norm: momentum must be from 0 to 1, got 2");
  EXPECT_EQ(message({2, 2, 4}, 2, {.eps = -1}), "batch_norm: eps must not be negative, got -1");
  EXPECT_EQ(message_of([&] {
              batch_norm(variable({2, 2, 4}), {}, {}, variable({2}), variable({2}));
            }),
            "batch_norm: input \"weight\" is missing");
  EXPECT_EQ(message_of([&] {
              batch_norm(variable({2, 2, 4}), variable({2}), variable({2}), variable({2}), variable({2}, DType::f64));
            }),
            "batch_norm: running_variance must be f32, got f64");
}

TEST(BatchNorm, SynchronizedInOneProcessIsTheSame) {
  const Tensor x = Tensor::empty({4, 2, 5, 3}, DType::f64), g = Tensor::empty(x.shape(), DType::f64);
  fill_normal(x, 3, 2, 1, 0);
  fill_normal(g, 0, 1, 2, 0);
  const auto expect_near = [](const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::vector<double> a = found[i].to_vector<double>(), b = expected[i].to_vector<double>();
      for (std::size_t k = 0; k < b.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-13) << "tensor " << i << ", element " << k;
    }
  };
  const auto updated = [&](const std::string& name, std::vector<Tensor>& results) {
    const std::vector<Tensor> p = parameters();
    results = ops::run(name, {x, p[0], p[1], p[2], p[3]}, BatchNormAttributes{.momentum = 0.3});
    return p;
  };
  std::vector<Tensor> alone, together;
  expect_near(updated("synchronized_batch_norm", together), updated("batch_norm", alone));
  expect_near(together, alone);
  const std::vector<Tensor> inputs = {g, x, alone[1], alone[2], parameters()[0]};
  expect_near(ops::run("synchronized_batch_norm_backward", inputs, BatchNormAttributes{}),
              ops::run("batch_norm_backward", inputs, BatchNormAttributes{}));
}

TEST(BatchNorm, UpdatesTheRunningStatisticsWithTheUnbiasedVariance) {
  // Channel 0 has 1, 3, 5, 7: mean 4, variance 5, unbiased 20 / 3. Channel 1 is constant.
  const Tensor x = Tensor::from<double>({1, 3, 2, 2, 5, 7, 2, 2}, {2, 2, 2});
  const std::vector<Tensor> p = parameters();
  const std::vector<Tensor> results = run(x, p, {.eps = 4, .momentum = 0.25});
  const double third = 1.0 / 3;
  EXPECT_TRUE(equal_numbers(results[0].to_vector<double>(), {-1, -third, 10, 10, third, 1, 10, 10}));
  EXPECT_TRUE(equal_numbers(p[2].to_vector<double>(), {1, 3.5}));
  EXPECT_DOUBLE_EQ(p[3].to_vector<double>()[0], 0.75 + 0.25 * 20 / 3);
  EXPECT_DOUBLE_EQ(p[3].to_vector<double>()[1], 2.25);
  EXPECT_TRUE(equal_numbers(results[1].to_vector<double>(), {4, 2}));
  EXPECT_TRUE(equal_numbers(results[2].to_vector<double>(), {third, 0.5}));
}

TEST(BatchNorm, AnEmptyBatchLeavesTheRunningStatistics) {
  const std::vector<Tensor> p = parameters();
  run(Tensor::empty({0, 2, 3}, DType::f64), p, {});
  EXPECT_TRUE(equal_numbers(p[2].to_vector<double>(), {0, 4}));
  EXPECT_TRUE(equal_numbers(p[3].to_vector<double>(), {1, 3}));
}

TEST(BatchNorm, InferenceUsesTheRunningStatisticsAndKeepsThem) {
  const std::vector<Tensor> p = parameters();
  const Tensor x = Tensor::from<double>({3, 6}, {1, 2});  // one value a channel is enough
  EXPECT_TRUE(equal_numbers(run(x, p, {.eps = 1, .training = false})[0].to_vector<double>(), {3 / std::sqrt(2.0), 12}));
  EXPECT_TRUE(equal_numbers(p[2].to_vector<double>(), {0, 4}));
  EXPECT_TRUE(equal_numbers(p[3].to_vector<double>(), {1, 3}));
}

TEST(BatchNorm, InferenceConfinesInfinityToItsElement) {
  const std::vector<Tensor> p = parameters();
  const Tensor x = Tensor::from<double>({inf, 4, 0, nan}, {2, 2});
  const std::vector<Tensor> results = run(x, p, {.eps = 0, .training = false});
  EXPECT_TRUE(equal_numbers(results[0].to_vector<double>(), {inf, 10, 0, nan}));
  const Tensor gradient = Tensor::full({2, 2}, 1, DType::f64);
  const Tensor dx = ops::run("batch_norm_backward", {gradient, x, results[1], results[2], p[0]}, BatchNormAttributes{.training = false})[0];
  EXPECT_TRUE(equal_numbers(dx.to_vector<double>(), {1, 2 / std::sqrt(3.0), 1, 2 / std::sqrt(3.0)}));
}

TEST(BatchNorm, IsElementwiseWhenNothingIsTrained) {
  Graph graph;
  const auto variable = [&](const char* name) { return graph.variable(name, {DType::f32, {2}}, [](const Tensor&, std::uint64_t) {}); };
  const Values inputs{graph.input("x", {3, 2, 4}), variable("weight"), variable("bias"), variable("mean"), variable("variance")};
  const ops::Operator& op = ops::registry().find("batch_norm");
  const BatchNormAttributes training{.eps = 0.5, .momentum = 0.25};
  const Values replaced = op.at_inference(graph, inputs, training);
  EXPECT_EQ(replaced[0].type(), inputs[0].type());
  EXPECT_FALSE(replaced[1] || replaced[2]);  // the statistics are for the gradient
  for (const graph::Node* node : graph.all(graph::NodeKind::operation)) {
    EXPECT_TRUE(node->op->elementwise || node->op->view) << node->op->name;
  }
}

TEST(BatchNorm, HalfDataMayHaveFloatRunningStatistics) {
  std::vector<Tensor> p = parameters(DType::f16);
  p[2] = Tensor::from<float>({0, 4}, {2});
  p[3] = Tensor::from<float>({1, 3}, {2});
  const Tensor x = Tensor::from<double>({1, 3, 2, 2, 5, 7, 2, 2}, {2, 2, 2}).to(DType::f16);
  run(x, p, {.momentum = 1e-5});
  EXPECT_EQ(p[2].dtype(), DType::f32);
  EXPECT_NEAR(p[2].to_vector<double>()[0], 4e-5, 1e-11);
  EXPECT_NEAR(p[3].to_vector<double>()[0] - 1, 1e-5 * (20.0 / 3 - 1), 1e-7);
}

}  // namespace
}  // namespace frit
