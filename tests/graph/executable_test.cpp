#include "frit/graph/executable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "frit/core/memory/allocator.h"
#include "frit/graph/program.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

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
