#include "frit/core/random.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(InstanceNorm, RefusesBadCalls) {
  Graph graph;
  auto input = [&, count = 0](const Shape& shape, DType dtype = DType::f32) mutable { return graph.input(concat(count++), shape, dtype); };
  const Value x = input({2, 3, 4});
  const auto message = [](const std::function<Value()>& call) { return message_of([&] { call(); }); };
  EXPECT_EQ(message([&] {
              return instance_norm(input({1, 2, 1, 1, 1}));
            }),
            "instance_norm: expected more than 1 spatial element, got input 1x2x1x1x1");
  EXPECT_EQ(message([&] { return instance_norm(input({5, 2})); }), "instance_norm: expected more than 1 spatial element, got input 5x2");
  EXPECT_EQ(message([&] { return instance_norm(input({5})); }), "instance_norm: expected input (N, C, ...), got 5");
  EXPECT_EQ(message([&] { return instance_norm(x, input({3})); }), "instance_norm: weight and bias come both or not at all");
  EXPECT_EQ(message([&] { return instance_norm(x, {}, input({3})); }), "instance_norm: input \"weight\" is missing");
  EXPECT_EQ(message([&] { return instance_norm(x, input({2}), input({2})); }),
            "instance_norm: weight must have shape 3, got 2 (input 2x3x4)");
  EXPECT_EQ(message([&] {
              return instance_norm(x, input({3}), input({3, 1}));
            }),
            "instance_norm: bias must have shape 3, got 3x1 (input 2x3x4)");
  EXPECT_EQ(message([&] { return instance_norm(x, input({3}, DType::f64), input({3})); }), "instance_norm: weight must be f32, got f64");
  EXPECT_EQ(message([&] { return instance_norm(x, {}, {}, -1); }), "instance_norm: eps must not be negative, got -1");
}

TEST(InstanceNorm, ConstantChannelGivesItsBias) {
  const auto norm = [](const Values& v) { return instance_norm(v[0], v[1], v[2]); };
  const Evaluation found =
      evaluate(norm, {Tensor::full({1, 2, 3}, 0.1), Tensor::from<float>({5, -7}, {2}), Tensor::from<float>({0.5, 0.25}, {2})});
  EXPECT_TRUE(equal_numbers(found.output, {0.5, 0.5, 0.5, 0.25, 0.25, 0.25}));
  EXPECT_TRUE(equal_numbers(found.gradients[0], std::vector<double>(6, 0)));
  EXPECT_TRUE(equal_numbers(found.gradients[1], {0, 0}));
  EXPECT_TRUE(equal_numbers(found.gradients[2], {3, 3}));
}

TEST(InstanceNorm, EmptyBatchHasZeroGradients) {
  const auto norm = [](const Values& v) { return instance_norm(v[0], v[1], v[2]); };
  for (const Shape& shape : {Shape{0, 2, 3}, Shape{4, 2, 0}}) {
    const Evaluation found = evaluate(norm, {Tensor::empty(shape), Tensor::full({2}, 1), Tensor::full({2}, 1)});
    EXPECT_TRUE(found.output.empty());
    EXPECT_TRUE(equal_numbers(found.gradients[1], {0, 0}));
    EXPECT_TRUE(equal_numbers(found.gradients[2], {0, 0}));
  }
}

/// A number added to a channel changes nothing: its gradient is a sum that cancels.
TEST(InstanceNorm, GradientOfAnOffsetBeforeItIsAStructuralZero) {
  const Tensor x = Tensor::empty({3, 4, 11, 7}), factor = Tensor::empty(x.shape());
  fill_normal(x, 0, 1, 1, 1);
  fill_normal(factor, 0, 1, 1, 2);
  const Evaluation found =
      evaluate([](const Values& v) { return instance_norm(v[0] + v[1]) * v[2]; }, {x, Tensor::zeros({4, 1, 1}), factor});
  double terms = 0;
  for (const double g : found.gradients[0]) terms += std::abs(g);
  for (const double g : found.gradients[1]) EXPECT_LE(std::abs(g), 1e-5 * terms);
}

TEST(InstanceNorm, CountsBeyondTheFloatIntegers) {
  const std::int64_t count = (std::int64_t{1} << 24) + 1;
  const Tensor x = Tensor::empty({1, 1, count});
  float* const data = x.data<float>();
  for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 2);
  const Tensor y = ops::run("instance_norm", {x}, ops::registry().find("instance_norm").default_attributes)[0];
  EXPECT_NEAR(static_cast<double>(y.data<float>()[0]), -1, 3e-5);  // eps takes 2e-5 away
  EXPECT_NEAR(static_cast<double>(y.data<float>()[count - 2]), 1, 3e-5);
}

}  // namespace
}  // namespace frit
