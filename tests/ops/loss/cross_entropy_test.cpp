#include "frit/core/random.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

Evaluation of(const Tensor& logits, const Tensor& target, Reduction reduction = Reduction::mean) {
  return evaluate([&](const Values& v) { return cross_entropy(v[0], v[1], reduction); }, {logits, target});
}

TEST(CrossEntropy, HasPyTorchsValuesAtInfinityAndNaN) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor logits = Tensor::from<double>({inf, 0, -inf, -inf, -inf, 0, -inf, 0, nan, 0, 1e30, -1e30}, {6, 2}).to(dtype);
    const Evaluation result = of(logits, Tensor::from<std::int64_t>({0, 0, 0, 1, 0, 1}, {6}), Reduction::none);
    EXPECT_TRUE(equal_numbers(result.output, {nan, nan, inf, 0, nan, Tensor::full({}, 2e30, dtype).item()}));
    EXPECT_TRUE(equal_numbers(result.gradients[0], {nan, nan, nan, nan, -1, 1, 0, 0, nan, nan, 1, -1}));
  }
}

TEST(CrossEntropy, TakesClassesOnAxisOne) {
  const Tensor logits = Tensor::from<double>({0, 1000, 0, 1000, 0, 0}, {1, 2, 3});
  const Evaluation result = of(logits, Tensor::from<std::int64_t>({0, 1, 1}, {1, 3}), Reduction::sum);
  EXPECT_TRUE(equal_numbers(result.output, {2000 + std::log(2.0)}));
  EXPECT_TRUE(equal_numbers(result.gradients[0], {-1, 1, 0.5, 1, -1, -0.5}));
}

TEST(CrossEntropy, TakesEitherLayout) {
  for (const std::int64_t classes : {2, 3, 100, 700}) {
    const Tensor numbers = Tensor::empty({2, classes, 7, 9}), target = Tensor::empty({2, 7, 9}, DType::i64);
    fill_normal(numbers, 0, 1, 1, 1);
    const Tensor logits = numbers.to(DType::f64);
    std::int64_t next = 0;
    for (std::int64_t& index : target.span<std::int64_t>()) index = next++ * 7919 % classes;
    const auto backward = [&](Layout layout) {
      const Tensor x = logits.contiguous(layout);
      const std::vector<Tensor> loss = ops::run("cross_entropy", {x, target}, ops::LossAttributes{"none"});
      const Tensor result =
          ops::run("cross_entropy_backward", {target.to(DType::f64), x, target, loss[1], loss[2]}, ops::LossAttributes{"none"})[0];
      return std::vector<Tensor>{loss[0], result};
    };
    const std::vector<Tensor> expected = backward(Layout::contiguous), found = backward(Layout::channels_last);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(near(found[i], expected[i], 1e-14, largest_finite(expected[i]))) << classes << " classes, result " << i;
    }
  }
}

TEST(CrossEntropy, TakesNarrowTargets) {
  const Tensor logits = Tensor::from<double>({0.5, 1, 2, -1, 0, 3}, {2, 3});
  const Evaluation wide = of(logits, Tensor::from<std::int64_t>({2, 0}, {2}));
  const Evaluation narrow = of(logits, Tensor::from<std::int32_t>({2, 0}, {2}));
  EXPECT_TRUE(equal_numbers(narrow.output, wide.output));
  EXPECT_TRUE(equal_numbers(narrow.gradients[0], wide.gradients[0]));
}

TEST(CrossEntropy, OverNothing) {
  const Tensor logits = Tensor::zeros({0, 3}), target = Tensor::zeros({0}, DType::i64);
  EXPECT_TRUE(equal_numbers(of(logits, target).output, {nan}));
  EXPECT_TRUE(equal_numbers(of(logits, target, Reduction::sum).output, {0}));
  EXPECT_TRUE(equal_numbers(of(logits, target, Reduction::none).output, {}));
}

// A bad index is found before anything is read with it, in the backward kernel too.
TEST(CrossEntropy, RefusesTargetsThatAreNoClasses) {
  const Tensor logits = Tensor::zeros({3, 10});
  EXPECT_EQ(message_of([&] {
              of(logits, Tensor::from<std::int64_t>({0, 10, -1}, {3}));
            }),
            "cross_entropy: input \"target\" has 10 at element 1, expected an index in [0, 10)");
  EXPECT_EQ(message_of([&] {
              of(logits, Tensor::from<std::int32_t>({0, 9, -1}, {3}));
            }),
            "cross_entropy: input \"target\" has -1 at element 2, expected an index in [0, 10)");
  EXPECT_EQ(message_of([&] {
              of(Tensor::zeros({1, 0}), Tensor::zeros({1}, DType::i64));
            }),
            "cross_entropy: input \"target\" has 0 at element 0, expected an index in [0, 0)");
  const ops::Operator& backward = ops::registry().find("cross_entropy_backward");
  const Tensor ones = Tensor::full({3}, 1);
  EXPECT_EQ(message_of([&] {
              ops::run(backward, std::array{Tensor::full({}, 1), logits, Tensor::from<std::int64_t>({INT64_MAX, 0, 0}, {3}), ones, ones},
                       backward.default_attributes);
            }),
            "cross_entropy_backward: input \"target\" has 9223372036854775807 at element 0, expected an index in [0, 10)");
}

TEST(CrossEntropy, RefusesTargetsOfAnotherShapeOrType) {
  Graph graph;
  const Value logits = graph.input("logits", {2, 5, 3});
  EXPECT_EQ(message_of([&] { cross_entropy(logits, graph.input("flat", {2}, DType::i64)); }),
            "cross_entropy: target is i64 2, logits 2x5x3 need i64 2x3");
  EXPECT_EQ(message_of([&] {
              cross_entropy(logits, graph.input("float", {2, 3}));
            }),
            "cross_entropy: target is f32 2x3, logits 2x5x3 need i64 2x3");
  EXPECT_EQ(message_of([&] { cross_entropy(graph.input("line", {5}), graph.input("one", {}, DType::i64)); }),
            "cross_entropy: logits must be (N, C, ...), got 5");
}

}  // namespace
}  // namespace frit
