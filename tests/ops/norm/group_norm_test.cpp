#include "frit/core/random.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(GroupNorm, RefusesBadCalls) {
  Graph graph;
  auto input = [&, count = 0](const Shape& shape) mutable { return graph.input(concat(count++), shape); };
  const Value x = input({1, 4, 2});
  const auto message = [](const std::function<Value()>& call) { return message_of([&] { call(); }); };
  EXPECT_EQ(message([&] { return group_norm(x, 3); }),
            "group_norm: the number of channels must be divisible by num_groups, got input 1x4x2 and num_groups 3");
  EXPECT_EQ(message([&] { return group_norm(x, -2); }), "group_norm: num_groups must be greater than 0, got -2");
  EXPECT_EQ(message([&] { return group_norm(x, 0); }), "group_norm: num_groups must be greater than 0, got 0");
  EXPECT_EQ(message([&] { return group_norm(x, 2, input({3}), input({3})); }), "group_norm: weight must have shape 4, got 3 (input 1x4x2)");
  EXPECT_EQ(message([&] { return group_norm(x, 2, input({4})); }), "group_norm: weight and bias come both or not at all");
  EXPECT_EQ(message([&] {
              return group_norm(input({1, 4}), 4);
            }),
            "group_norm: expected more than 1 value per group, got input 1x4 and num_groups 4");
  EXPECT_EQ(message([&] { return group_norm(input({4}), 1); }), "group_norm: expected input (N, C, ...), got 4");
}

TEST(GroupNorm, OneValueAGroupGivesTheBias) {
  const Tensor x = Tensor::from<float>({1, -2, 3, 4}, {2, 2});
  const Evaluation found = evaluate([](const Values& v) { return group_norm(v[0], 2, v[1], v[2]); },
                                    {x, Tensor::from<float>({5, 6}, {2}), Tensor::from<float>({7, 8}, {2})});
  EXPECT_TRUE(equal_numbers(found.output, {7, 8, 7, 8}));
  EXPECT_TRUE(equal_numbers(found.gradients[0], {0, 0, 0, 0}));
  EXPECT_TRUE(equal_numbers(found.gradients[1], {0, 0}));
  EXPECT_TRUE(equal_numbers(found.gradients[2], {2, 2}));
}

Evaluation weighted(const std::function<Value(const Values&)>& norm, const Shape& shape, std::int64_t channels) {
  std::vector<Tensor> inputs;
  for (const Shape& each : {shape, Shape{channels}, Shape{channels}, shape}) {
    inputs.push_back(Tensor::empty(each, DType::f64));
    fill_normal(inputs.back(), 0, 1, 7, inputs.size());
  }
  return evaluate([&](const Values& v) { return norm({v[0], v[1], v[2]}) * v[3]; }, inputs);
}

TEST(GroupNorm, AsManyGroupsAsChannelsIsInstanceNorm) {
  for (const Shape& shape : {Shape{3, 4, 5}, Shape{2, 4, 3, 6}}) {
    const Evaluation group = weighted([](const Values& v) { return group_norm(v[0], 4, v[1], v[2]); }, shape, 4);
    const Evaluation instance = weighted([](const Values& v) { return instance_norm(v[0], v[1], v[2]); }, shape, 4);
    EXPECT_EQ(group.output, instance.output);
    EXPECT_EQ(group.gradients, instance.gradients);
  }
}

TEST(GroupNorm, OneGroupWithoutSpaceIsLayerNorm) {
  const Evaluation group = weighted([](const Values& v) { return group_norm(v[0], 1, v[1], v[2]); }, {5, 40}, 40);
  const Evaluation layer = weighted([](const Values& v) { return layer_norm(v[0], 1, v[1], v[2]); }, {5, 40}, 40);
  EXPECT_EQ(group.output, layer.output);
  EXPECT_EQ(group.gradients, layer.gradients);
}

TEST(GroupNorm, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = thread_count();
  const auto run = [](int count) {
    set_thread_count(count);
    return weighted([](const Values& v) { return group_norm(v[0], 8, v[1], v[2]); }, {6, 64, 13, 11}, 64);
  };
  const Evaluation expected = run(1);
  for (const int count : {2, 3, 8}) {
    const Evaluation found = run(count);
    EXPECT_EQ(found.output, expected.output);
    EXPECT_EQ(found.gradients, expected.gradients);
  }
  set_thread_count(threads);
}

}  // namespace
}  // namespace frit
