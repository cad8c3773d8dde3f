// Values that lie in others: slices that are read where they lie, and what is joined where it is computed.

#include <algorithm>
#include <cmath>

#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

std::vector<std::string> steps_of(const Graph& graph) {
  State state;
  const graph::Executable executable(graph, state);
  std::vector<std::string> ops;
  for (const graph::Step& step : executable.steps()) ops.push_back(step.op->name);
  return ops;
}

TEST(Parts, PartsAreReadWhereTheyLieByKernelsThatTakeAnyStrides) {
  Graph graph;
  const Value whole = exp(graph.input("x", {2, 4, 3}));
  const Value left = slice(whole, 1, 0, 2), right = slice(whole, 1, 2, 4), last = slice(right, 2, 1, 3);
  // relu could have the dying part's memory, where the other part still lies.
  graph.output("sum", relu(left) * 2.0 + right);
  graph.output("last", exp(last));
  EXPECT_EQ(steps_of(graph), (std::vector<std::string>{"exp", "relu", "multiply", "add", "exp"}));
  std::vector<float> x(24);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::log(static_cast<float>(i + 1));
  const Bindings inputs = {{"x", Tensor::from<float>(x, {2, 4, 3})}};
  const std::vector<double> sum = run(graph, inputs, "sum"), tail = run(graph, inputs, "last");
  for (std::size_t n = 0; n < 2; ++n) {
    for (std::size_t i = 0; i < 6; ++i) {
      const auto first = static_cast<double>(12 * n + i + 1);
      EXPECT_NEAR(sum[6 * n + i], 2 * first + (first + 6), 1e-4);
      if (i % 3 == 0) continue;
      EXPECT_NEAR(std::log(tail[4 * n + i / 3 * 2 + i % 3 - 1]), first + 6, 1e-4);
    }
  }

  Graph copied;  // what others read, a product and whoever runs the graph, lies as if it were no part
  const Value y = exp(copied.input("x", {4, 6}));
  copied.output("product", matmul(slice(y, 1, 0, 4), copied.input("w", {4, 2})));
  copied.output("part", slice(y, 1, 1, 3));
  copied.output("turned", exp(permute(slice(y, 1, 0, 3), {1, 0})));
  const std::vector<std::string> steps = steps_of(copied);
  EXPECT_EQ(std::count(steps.begin(), steps.end(), "slice"), 3);
}

/// The same graph with what is joined as outputs, too, which have memory of their own.
TEST(Parts, WhatIsJoinedIsComputedWhereItIsJoined) {
  const auto build = [](Graph& graph, bool apart) {
    const Value x = graph.input("x", {2, 16, 9, 7});
    const auto convolved = [&](Value of, const char* name, std::int64_t channels, std::int64_t taps) {
      return conv2d(of, graph.input(name, {channels, of.dim(1), taps, taps}), {}, {.padding = {taps / 2, taps / 2}});
    };
    const Value narrow = relu(convolved(x, "one", 24, 1)), wide = convolved(x, "three", 32, 3), own = exp(x);
    const Value joined = concatenate({narrow, wide, own}, 1);  // `narrow` is read once more, and so is part of the joined
    const Value again = concatenate({convolved(narrow, "next", 8, 3), joined}, 1);
    graph.output("y", convolved(relu(again), "last", 4, 3));
    graph.output("z", sum(joined * 2.0, {0, 2, 3}));
    if (!apart) return;
    for (const auto& [name, value] : {std::pair{"a", narrow}, {"b", wide}, {"c", own}, {"d", joined}}) graph.output(name, value);
  };
  Graph together, apart;
  build(together, false);
  build(apart, true);
  const Bindings inputs = random_inputs(together);
  const std::vector<std::string> joins = steps_of(apart);
  EXPECT_EQ(std::count(joins.begin(), joins.end(), "concatenate"), 2);
  for (const std::string& op : steps_of(together)) EXPECT_NE(op, "concatenate");
  for (const char* const output : {"y", "z"}) {
    const std::vector<double> found = run(together, inputs, output), expected = run(apart, inputs, output);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], expected[i]) << output << ' ' << i;
  }
}

/// By each operation that joins.
std::vector<std::size_t> joined_at_once(const Graph& graph) {
  std::vector<std::size_t> joined;
  for (const graph::Node* node : graph.all(graph::NodeKind::operation)) {
    if (node->op->joins) joined.push_back(node->inputs.size());
  }
  return joined;
}

/// As DenseNets do: each convolution reads all that came before it.
TEST(Parts, AListThatGrowsIsJoinedInOnePlace) {
  Graph graph;
  Values list = {relu(graph.input("x", {2, 16, 9, 7}))};
  for (int i = 0; i < 4; ++i) {
    const Value all = list.size() > 1 ? concatenate(list, 1) : list[0];
    const Value weight = graph.input(concat("weight ", i), {8, all.dim(1), 3, 3});
    list.push_back(conv2d(relu(all * 2.0), weight, {}, {.padding = {1}}));
  }
  graph.output("y", relu(concatenate({list[4], list[0], list[1], list[2], list[3]}, 1)));
  const Graph nested = graph::nest_joins(graph);
  EXPECT_EQ(joined_at_once(nested), (std::vector<std::size_t>{2, 2, 2, 2}));
  for (const std::string& op : steps_of(nested)) EXPECT_NE(op, "concatenate");
  const Bindings inputs = random_inputs(graph);
  EXPECT_EQ(run(nested, inputs, "y"), run(graph, inputs, "y"));
}

TEST(Parts, OnlyWhatIsJoinedInThatOrderIsJoinedAsItIs) {
  Graph graph;
  const Value a = graph.input("a", {4, 4}), b = graph.input("b", {4, 4}), c = graph.input("c", {4, 4});
  for (const Values& list : {Values{a, b}, Values{b, a, c}, Values{c, a, b}, Values{a, c, b}}) {
    graph.output(concat("y", graph.outputs().size()), concatenate(list, 1));
  }
  graph.output("z", concatenate({a, b, c}, 0));
  EXPECT_EQ(joined_at_once(graph::nest_joins(graph)), (std::vector<std::size_t>{2, 3, 2, 3, 3}));
}

/// In the layout of rows, parts are in one piece where there is one sample: any kernel takes them. Inputs of the graph and what is joined
/// twice are copied.
TEST(Parts, OnlyWhatIsComputedOnceCanBeJoinedInPlace) {
  Graph graph;
  const Value x = graph.input("x", {1, 16, 4}), weights = softmax(x, 2);
  graph.output("y", sum(concatenate({softmax(x, 1), x}, 1), {1}));
  graph.output("z", sum(concatenate({weights, weights}, 1), {1}));
  graph.output("w", sum(concatenate({softmax(x * 2.0, 2), softmax(x * 3.0, 2)}, 1), {2}));
  const std::vector<std::string> steps = steps_of(graph);
  EXPECT_EQ(std::count(steps.begin(), steps.end(), "concatenate"), 2);
  const Tensor given = Tensor::empty({1, 16, 4});
  fill_normal(given, 0, 1, 1, 1);
  const std::vector<double> values = given.to_vector<double>();
  const std::vector<double> y = run(graph, {{"x", given}}, "y"), z = run(graph, {{"x", given}}, "z"), w = run(graph, {{"x", given}}, "w");
  for (std::size_t k = 0; k < 4; ++k) {
    double column = 0, of_weights = 0;
    for (std::size_t c = 0; c < 16; ++c) {
      double row = 0;
      for (std::size_t j = 0; j < 4; ++j) row += std::exp(values[4 * c + j]);
      column += values[4 * c + k];
      of_weights += std::exp(values[4 * c + k]) / row;
    }
    EXPECT_NEAR(y[k], 1 + column, 1e-5);
    EXPECT_NEAR(z[k], 2 * of_weights, 1e-5);
  }
  ASSERT_EQ(w.size(), 32u);
  for (const double row : w) EXPECT_NEAR(row, 1, 1e-6);
}

/// A plan looks at nothing that lies in memory: a program's single number, far out in what it is a part of, has none yet.
TEST(Parts, ANumberThatIsAPartMayFollowAConvolution) {
  constexpr std::int64_t numbers = 4'000'000;
  Graph graph;
  const Value many = exp(expand(graph.input("x", {1}), {numbers}));
  const Value number = slice(many, 0, numbers - 3, numbers - 2);
  const Value y = conv2d(graph.input("image", {1, 16, 5, 5}), graph.input("weight", {16, 16, 1, 1}));
  graph.output("y", power(sigmoid(y), number));  // whose kernel is chosen by the number
  graph.output("many", many);                    // so that the part may lie in it
  const Graph compiled = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), std::move(graph));
  const Bindings inputs = {{"x", Tensor::full({1}, std::log(2), DType::f32)},
                           {"image", Tensor::zeros({1, 16, 5, 5})},
                           {"weight", Tensor::zeros({16, 16, 1, 1})}};
  for (const double value : run(compiled, inputs, "y")) ASSERT_NEAR(value, 0.25, 1e-6);
}

TEST(Parts, PartsInOnePieceAreReadWhereTheyLieByAnyKernel) {
  Graph graph;
  const Value whole = exp(graph.input("x", {2, 16, 4}));
  const Value a = reshape(slice(whole, 0, 0, 1), {16, 4}), b = reshape(permute(slice(whole, 0, 1, 2), {1, 0, 2}), {4, 16});
  graph.output("y", matmul(a, b));
  State state;
  const graph::Executable executable(graph, state);
  ASSERT_EQ(executable.steps().size(), 2u);
  EXPECT_EQ(executable.steps()[1].op->name, "matmul");
  std::vector<float> x(128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::log(static_cast<float>(i + 1));
  const std::vector<double> y = run(graph, {{"x", Tensor::from<float>(x, {2, 16, 4})}}, "y");
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 4; ++k) sum += static_cast<double>((4 * i + k + 1) * (64 + 16 * k + j + 1));
      EXPECT_NEAR(y[16 * i + j], sum, 1e-4 * sum);
    }
  }

  Graph split;  // the second begins where no buffer would
  const Value odd = exp(split.input("x", {2, 3, 5}));
  split.output("y", matmul(reshape(slice(odd, 0, 1, 2), {3, 5}), reshape(slice(odd, 0, 0, 1), {5, 3})));
  const graph::Executable copied(split, state);
  EXPECT_EQ(copied.steps().size(), 3u);
}

TEST(Parts, PartsOfPartsAreReadWhereTheirElementsAre) {
  const Tensor x = Tensor::empty({4, 128});
  fill_normal(x, 0, 1, 1, 1);
  Graph parts, apart;
  parts.output("y", matmul(slice(slice(exp(parts.input("x", {4, 128})), 1, 0, 64), 0, 1, 3), parts.input("w", {64, 2})));
  apart.output("y", matmul(exp(apart.input("x", {2, 64})), apart.input("w", {64, 2})));
  const Tensor w = Tensor::full({64, 2}, 0.5), part = x.slice(1, 0, 64).slice(0, 1, 3).contiguous();
  EXPECT_EQ(run(parts, {{"x", x}, {"w", w}}, "y"), run(apart, {{"x", part}, {"w", w}}, "y"));
}

TEST(Parts, PartsOfHalvesAreWidenedAsTheyLie) {
  const Tensor x = Tensor::empty({3, 5, 4}, DType::f16);
  fill_normal(x, 0, 1, 1, 1);
  Graph parts, apart;
  parts.output("y", sigmoid(slice(relu(parts.input("x", {3, 5, 4}, DType::f16)), 1, 1, 4)));
  apart.output("y", sigmoid(relu(apart.input("x", {3, 3, 4}, DType::f16))));
  EXPECT_EQ(run(parts, {{"x", x}}, "y"), run(apart, {{"x", x.slice(1, 1, 4).contiguous()}}, "y"));
}

}  // namespace
}  // namespace frit
