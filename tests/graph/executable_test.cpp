#include "frit/graph/executable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "frit/core/memory/allocator.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

std::vector<double> run(const Graph& graph, const Bindings& inputs, const std::string& output) {
  State state;
  graph::Executable executable(graph, state);
  executable.run(inputs);
  return executable.output(output).to_vector<double>();
}

TEST(Executable, RunsAGraph) {
  Graph graph;
  const Value x = graph.input("x", {3});
  const Value w = graph.variable("w", {DType::f32, {3}}, filled(2));
  graph.output("y", x * w + 1.0);
  EXPECT_EQ(run(graph, {{"x", Tensor::from<float>({1, 2, 3}, {3})}}, "y"), (std::vector<double>{3, 5, 7}));
}

/// An operator's kernel that says what was prepared, and whether that was before all runs.
struct Preparations {
  std::atomic<int> prepared = 0, runs = 0, late = 0;

  const ops::Operator& op() {
    ops::Operator op{.name = "prepared_copy",
                     .summary = "for tests of preparation",
                     .inputs = {"x"},
                     .infer = ops::infer_same,
                     .no_gradient = "for tests",
                     .cpu = {.run =
                                 [this](const ops::KernelContext& call) {
                                   ++runs;
                                   copy(call.outputs[0], call.inputs[0]);
                                 },
                             .prepare = [this](const ops::KernelContext&) { runs > 0 ? ++late : ++prepared; }},
                     .samples = [] { return std::vector<ops::Sample>{{.inputs = {Shape{3}}}}; }};
    return ops::registry().add(std::move(op));
  }
};

TEST(Executable, PreparesItsOperationsOnceBeforeTheFirstRuns) {
  static Preparations counts;  // as the registry keeps the operator
  const ops::Operator& op = counts.op();
  Graph graph;
  const Value x = graph.input("x", {3});
  const Value y = graph.emit(op, Values{x}, op.default_attributes).at(0);
  graph.output("z", graph.emit(op, Values{y + 1.0}, op.default_attributes).at(0));
  State state;
  graph::Executable executable(graph, state);
  EXPECT_EQ(counts.prepared, 0);
  for (int i = 0; i < 2; ++i) executable.run({{"x", Tensor::zeros({3})}});
  EXPECT_EQ(executable.output("z").to_vector<double>(), std::vector<double>(3, 1));
  EXPECT_EQ(counts.prepared, 2);
  EXPECT_EQ(counts.runs, 4);
  EXPECT_EQ(counts.late, 0);
}

TEST(Executable, LeavesOutWhatNobodyReads) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  relu(exp(x));
  logsumexp(x, {1});
  graph.output("y", x + 1.0);
  State state;
  graph::Executable executable(graph, state);
  executable.run({{"x", Tensor::zeros({2, 3})}});
  EXPECT_EQ(executable.output("y").to_vector<double>(), std::vector<double>(6, 1));
  EXPECT_EQ(executable.steps().size(), 1u);
}

TEST(Executable, TakesInputsOfAnyStrides) {
  Graph graph;
  graph.output("y", graph.input("x", {2, 3}) * 1.0);
  const Tensor transposed = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}).transpose(0, 1);
  EXPECT_EQ(run(graph, {{"x", transposed}}, "y"), (std::vector<double>{1, 3, 5, 2, 4, 6}));
}

TEST(Executable, NamesTheInputThatDoesNotFit) {
  Graph graph;
  graph.output("y", -graph.input("x", {3}));
  State state;
  graph::Executable executable(graph, state);
  const auto message = [&](const Bindings& inputs) -> std::string {
    try {
      executable.run(inputs);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({}), "input \"x\" was not given");
  EXPECT_EQ(message({{"x", Tensor::zeros({4})}}), "input \"x\": expected f32 3, got f32 4");
  EXPECT_EQ(message({{"x", Tensor::zeros({3}, DType::f64)}}), "input \"x\": expected f32 3, got f64 3");
}

TEST(Executable, ReusesADyingInputsMemory) {
  Graph graph;
  Value y = graph.input("x", {1000});
  for (int i = 0; i < 10; ++i) y = relu(y + 1.0);
  graph.output("y", y);
  const graph::BufferPlan buffers = graph::plan_buffers(graph);
  // The input lives throughout; everything after it shares one buffer.
  EXPECT_EQ(buffers.lifetimes.size(), 2u);
}

TEST(Executable, KeepsAValueThatIsReadAgain) {
  Graph graph;
  const Value x = graph.input("x", {2});
  const Value a = x + 1.0;
  const Value b = relu(a);
  graph.output("y", a * b - a);
  EXPECT_EQ(run(graph, {{"x", Tensor::from<float>({1, -4}, {2})}}, "y"), (std::vector<double>{2, 3}));
}

TEST(Executable, ViewsShareTheirSourcesBuffer) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  const Value flat = reshape(x * 2.0, {6});
  graph.output("y", flat + 1.0);
  graph.output("first", reshape(flat, {3, 2}));
  const Bindings inputs = {{"x", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})}};
  EXPECT_EQ(run(graph, inputs, "y"), (std::vector<double>{3, 5, 7, 9, 11, 13}));
  EXPECT_EQ(run(graph, inputs, "first"), (std::vector<double>{2, 4, 6, 8, 10, 12}));
}

std::vector<std::string> steps_of(const Graph& graph) {
  State state;
  const graph::Executable executable(graph, state);
  std::vector<std::string> ops;
  for (const graph::Step& step : executable.steps()) ops.push_back(step.op->name);
  return ops;
}

TEST(Executable, PartsAreReadWhereTheyLieByKernelsThatTakeAnyStrides) {
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
TEST(Executable, WhatIsJoinedIsComputedWhereItIsJoined) {
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
  Bindings inputs;
  for (const graph::Node* node : together.all(graph::NodeKind::input)) {
    const Tensor tensor = Tensor::empty(together.type(node->outputs[0]).shape);
    fill_normal(tensor, 0, 1, inputs.size(), 1);
    inputs[node->name] = tensor;
  }
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
TEST(Executable, AListThatGrowsIsJoinedInOnePlace) {
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
  Bindings inputs;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) {
    const Tensor tensor = Tensor::empty(graph.type(node->outputs[0]).shape);
    fill_normal(tensor, 0, 1, inputs.size(), 1);
    inputs[node->name] = tensor;
  }
  EXPECT_EQ(run(nested, inputs, "y"), run(graph, inputs, "y"));
}

TEST(Executable, OnlyWhatIsJoinedInThatOrderIsJoinedAsItIs) {
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
TEST(Executable, OnlyWhatIsComputedOnceCanBeJoinedInPlace) {
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
TEST(Executable, ANumberThatIsAPartMayFollowAConvolution) {
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

TEST(Executable, PartsInOnePieceAreReadWhereTheyLieByAnyKernel) {
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

TEST(Executable, PartsOfPartsAreReadWhereTheirElementsAre) {
  const Tensor x = Tensor::empty({4, 128});
  fill_normal(x, 0, 1, 1, 1);
  Graph parts, apart;
  parts.output("y", matmul(slice(slice(exp(parts.input("x", {4, 128})), 1, 0, 64), 0, 1, 3), parts.input("w", {64, 2})));
  apart.output("y", matmul(exp(apart.input("x", {2, 64})), apart.input("w", {64, 2})));
  const Tensor w = Tensor::full({64, 2}, 0.5), part = x.slice(1, 0, 64).slice(0, 1, 3).contiguous();
  EXPECT_EQ(run(parts, {{"x", x}, {"w", w}}, "y"), run(apart, {{"x", part}, {"w", w}}, "y"));
}

TEST(Executable, PartsOfHalvesAreWidenedAsTheyLie) {
  const Tensor x = Tensor::empty({3, 5, 4}, DType::f16);
  fill_normal(x, 0, 1, 1, 1);
  Graph parts, apart;
  parts.output("y", sigmoid(slice(relu(parts.input("x", {3, 5, 4}, DType::f16)), 1, 1, 4)));
  apart.output("y", sigmoid(relu(apart.input("x", {3, 3, 4}, DType::f16))));
  EXPECT_EQ(run(parts, {{"x", x}}, "y"), run(apart, {{"x", x.slice(1, 1, 4).contiguous()}}, "y"));
}

TEST(Executable, AStepAfterTheFirstAllocatesNothing) {
  Graph graph;
  const Value x = graph.input("x", {64, 64});
  graph.output("y", sum(sigmoid(x) * x, {1}));
  State state;
  graph::Executable executable(graph, state);
  const Bindings inputs = {{"x", Tensor::full({64, 64}, 0.5)}};
  executable.run(inputs);
  const AllocatorStatistics before = allocator_of(Device::cpu()).statistics();
  for (int i = 0; i < 5; ++i) executable.run(inputs);
  const AllocatorStatistics after = allocator_of(Device::cpu()).statistics();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.source_allocations, before.source_allocations);
}

TEST(Executable, RunsAgainOnTheInputsOfTheLastRun) {
  Graph graph;
  const Value x = graph.input("x", {2});
  graph.output("y", relu(x) + 1.0);
  State state;
  graph::Executable executable(graph, state);
  executable.run({{"x", Tensor::from<float>({3, -3}, {2})}});
  executable.output("y").fill(0);
  executable.run();
  EXPECT_EQ(executable.output("y").to_vector<double>(), (std::vector<double>{4, 1}));
}

TEST(Executable, StepsWaitForWhatTheyReadAndForReadersOfWhatTheyOverwrite) {
  using Before = std::vector<std::vector<int>>;
  Graph graph;
  const Value x = graph.input("x", {3}), left = exp(x), right = -x;
  graph.output("left", left);
  graph.output("right", right);
  graph.output("sum", left + right);
  graph.output("twice", (left + right) * 2.0);
  State state;
  EXPECT_EQ(graph::steps_before(graph::Executable(graph, state).steps()), (Before{{}, {}, {1, 0}, {1, 0}, {3}}));

  Graph changing;
  const Value w = changing.variable("w", {DType::f32, {3}}, filled(2)), one = changing.constant(Tensor::full({}, 1, DType::f32));
  changing.output("before", -w);
  ops::clear(w, one);
  State other;
  EXPECT_EQ(graph::steps_before(graph::Executable(changing, other).steps()), (Before{{}, {0}}));
}

TEST(Program, CompilesOnceForEachSetOfShapes) {
  Graph graph;
  graph.output("y", sum(graph.input("x", {8, 2}), {1}));
  Program program(graph, std::make_shared<State>());
  const graph::Executable* const eight = &program.run({{"x", Tensor::full({8, 2}, 1)}});
  const graph::Executable* const three = &program.run({{"x", Tensor::full({3, 2}, 1)}});
  EXPECT_NE(eight, three);
  EXPECT_EQ(three->output("y").shape(), Shape{3});
  EXPECT_EQ(&program.run({{"x", Tensor::full({8, 2}, 4)}}), eight);
  EXPECT_EQ(eight->output("y").to_vector<double>(), std::vector<double>(8, 8.0));
}

TEST(Program, GraphsThatShareAStateShareItsVariables) {
  Graph graph;
  const Value w = graph.variable("w", {DType::f32, {1}}, filled(3));
  graph.output("y", graph.input("x", {1}) * w);
  auto state = std::make_shared<State>();
  Program first(graph, state), second(graph, state);
  state->set("w", Tensor::from<double>({5}, {1}));
  const Bindings inputs = {{"x", Tensor::full({1}, 2)}};
  EXPECT_EQ(first.run(inputs).output("y").item(), 10);
  EXPECT_EQ(second.run(inputs).output("y").item(), 10);
}

TEST(Program, ThreadsBuildAndRunTheirOwnAtOnce) {
  const Tensor x = Tensor::full({64, 64}, 0.5);
  std::vector<std::vector<double>> results(4);
  std::vector<std::thread> threads;
  for (std::vector<double>& result : results) {
    threads.emplace_back([&] {
      Graph graph;
      graph.output("y", sum(ops::emit_one("sigmoid", {graph.input("x", x.shape())}), {1}));
      Program program(graph, std::make_shared<State>());
      for (int i = 0; i < 20; ++i) result = program.run({{"x", x}}).output("y").to_vector<double>();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_NEAR(results[0][0], 64 / (1 + std::exp(-0.5)), 1e-4);
}

TEST(State, NamesWhatDoesNotFit) {
  Graph graph;
  graph.variable("w", {DType::f32, {2}}, filled(0));
  State state;
  state.prepare(graph);
  EXPECT_THROW(state.set("v", Tensor::zeros({2})), Error);
  EXPECT_THROW(state.set("w", Tensor::zeros({3})), Error);
  Graph other;
  other.variable("w", {DType::f64, {2}}, filled(0));
  EXPECT_THROW(state.prepare(other), Error);
}

}  // namespace
}  // namespace frit
