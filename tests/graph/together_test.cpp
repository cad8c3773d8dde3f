#include "frit/graph/together.h"

#include <gtest/gtest.h>

#include "frit/graph/find_non_finite.h"
#include "frit/graph/profile.h"
#include "frit/graph/program.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

using Sizes = std::vector<std::size_t>;

Sizes batches;  // how many calls were computed at once, each time

struct Factor {
  double factor = 2;
  void fields(FieldVisitor& v) { v.field("factor", factor); }
};

void scale(const ops::KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < call.inputs[0].elements(); ++i) {
      call.outputs[0].data<T>()[i] = static_cast<T>(call.as<Factor>().factor) * call.inputs[0].data<T>()[i];
    }
  });
}

void subtract(const ops::KernelContext& call) {
  for (std::int64_t i = 0; i < call.inputs[0].elements(); ++i) call.inputs[0].data<float>()[i] -= call.inputs[1].data<float>()[i];
}

template <void (*run)(const ops::KernelContext&)>
ops::Kernel counting() {
  return {.run =
              [](const ops::KernelContext& call) {
                batches.push_back(1);
                run(call);
              },
          .run_together =
              [](std::span<const ops::KernelContext> calls) {
                batches.push_back(calls.size());
                for (std::size_t i = calls.size(); i-- > 0;) run(calls[i]);  // as good an order as any
              }};
}

void add_operators() {
  if (ops::registry().contains("scale_together")) return;
  const auto samples = [] { return std::vector<ops::Sample>{{.inputs = {Shape{2}, Shape{2}}}}; };
  ops::registry().add<Factor>({.name = "scale_together",
                               .summary = "factor x",
                               .inputs = {"x"},
                               .infer = ops::infer_same,
                               .no_gradient = "for tests",
                               .cpu = counting<scale>(),
                               .dtypes = {DType::f64, DType::f32, DType::f16},
                               .in_place = {{0, 0}},
                               .samples = samples});
  ops::registry().add({.name = "subtract_together",
                       .summary = "x -= y",
                       .inputs = {"x", "y"},
                       .outputs = {},
                       .infer = [](const ops::InferContext&) { return std::vector<TensorType>{}; },
                       .no_gradient = "for tests",
                       .cpu = counting<subtract>(),
                       .dtypes = {DType::f32},
                       .mutates = {0},
                       .samples = samples});
}

class Together : public testing::Test {
 protected:
  void SetUp() override {
    add_operators();
    batches.clear();
  }

  Value scaled(Value x, double factor = 2) { return ops::emit_one("scale_together", {x}, Factor{factor}); }
  void subtract_from(Value variable, Value y) { ops::emit("subtract_together", {variable, y}); }
  Value variable(const std::string& name, double value, const Shape& shape = {2}) {
    return graph.variable(name, {DType::f32, shape}, [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); });
  }
  /// As a step of training does: what depends on variables is then no preparation.
  void update_variables() {
    const Value one = graph.constant(Tensor::full({}, 1));
    Values variables;
    for (const graph::Node* node : graph.all(graph::NodeKind::variable)) variables.push_back(graph.value(node->outputs[0]));
    for (const Value& variable : variables) ops::clear(variable, one);
  }
  /// How many calls were computed at once in a run of the graph, whose results are those of the order given, one by one.
  Sizes run(const Graph& ordered) {
    const auto results = [](const Graph& of, bool one_by_one) {
      State state;
      graph::Executable executable(of, state);
      std::vector<graph::Step> steps = executable.preparation();
      steps.insert(steps.end(), executable.steps().begin(), executable.steps().end());
      for (const graph::Step& step : steps) {
        for (const graph::Call& call : one_by_one ? step.calls : std::vector<graph::Call>())
          graph::Step{step.op, step.attributes, {call}}.run();
      }
      if (!one_by_one) executable.run();
      std::map<std::string, std::vector<double>> values;
      for (const graph::Output& output : of.outputs()) values[output.name] = executable.output(output.name).to_vector<double>();
      for (const auto& [name, tensor] : state.tensors()) values[name] = tensor.to_vector<double>();
      return values;
    };
    const auto expected = results(graph, /*one_by_one=*/true);
    batches.clear();
    EXPECT_EQ(results(ordered, /*one_by_one=*/false), expected);
    return batches;
  }
  Graph gathered() const { return graph::bring_together(graph, Device::cpu()); }
  static std::int64_t lower_bound(const Graph& of) { return graph::plan_memory(graph::plan_buffers(of).lifetimes).lower_bound_bytes; }
  /// The calls of each step of the test's operators.
  static Sizes steps_of(const Graph& of) {
    State state;
    Sizes sizes;
    const graph::Executable executable(of, state);
    for (const graph::Step& step : executable.steps()) {
      if (step.op->cpu.run_together) sizes.push_back(step.calls.size());
    }
    return sizes;
  }

  Graph graph;
};

TEST_F(Together, NeighboursAreOneStepWhateverTheirSizes) {
  const Value a = variable("a", 1, {3}), b = variable("b", 2, {2, 5}), c = variable("c", 3, {0});
  for (const Value& x : {a, b, c}) graph.output(concat("of ", x.id()), scaled(x));
  EXPECT_EQ(run(graph), Sizes{3});
}

TEST_F(Together, ResultsTakeNoMemoryThatAnotherCallReads) {
  const Value x = exp(variable("a", 1)), y = exp(variable("b", 2));
  for (const Value& read : {x, y, y}) graph.output(concat("result ", graph.outputs().size()), scaled(read));
  update_variables();
  EXPECT_EQ(run(graph), Sizes{3});
}

TEST_F(Together, OtherAttributesOrDtypesAreOtherSteps) {
  const Value a = variable("a", 1), wide = graph.variable("wide", {DType::f64, {2}}, [](const Tensor&t, std::uint64_t) { t.fill(1); });
  graph.output("p", scaled(a, 2));
  graph.output("q", scaled(a, 3));
  graph.output("r", scaled(wide, 3));
  EXPECT_EQ(run(graph), (Sizes{1, 1, 1}));
  EXPECT_EQ(run(gathered()), (Sizes{1, 1, 1}));
}

TEST_F(Together, WhatReadsAnothersResultIsAnotherStep) {
  const Value a = variable("a", 1);
  const Value once = scaled(a);
  graph.output("flat", scaled(reshape(once, {1, 2})));
  update_variables();
  EXPECT_EQ(run(graph), (Sizes{1, 1})) << "through a view";
  EXPECT_EQ(run(gathered()), (Sizes{1, 1}));
}

TEST_F(Together, WhatReadsVariablesComesEarlyAndWhatIsReadAtTheEndLate) {
  Values late;
  Value x = graph.constant(Tensor::full({2}, 1));
  for (int i = 0; i < 4; ++i) {
    x = exp(x * scaled(variable(concat("w", i), 0.1)));
    late.push_back(reshape(scaled(x, 3), {1, 2}));
  }
  const Values many(64, x);
  graph.output("sum", exp(concatenate(many, 0)));  // where most memory is needed
  graph.output("late", concatenate(late, 0));
  update_variables();
  const Graph together = gathered();
  EXPECT_EQ(run(graph), Sizes(8, 1));
  EXPECT_EQ(run(together), (Sizes{4, 4}));
  EXPECT_LE(lower_bound(together), lower_bound(graph));
}

TEST_F(Together, NoMoreMemoryIsAliveThanInTheOrderGiven) {
  Value x = graph.input("x", {1});
  for (int i = 0; i < 6; ++i) x = sum(exp(scaled(variable(concat("w", i), 0.1, {i < 2 ? 100 : 1000}))) * x, {0}, /*keep_dims=*/true);
  graph.output("x", x);
  update_variables();
  const Graph together = gathered();
  EXPECT_LE(lower_bound(together), lower_bound(graph));
  const Sizes steps = steps_of(together);
  EXPECT_LT(steps.size(), 6u) << "the small ones fit next to the others";
  EXPECT_GT(steps.size(), 2u) << "the large ones do not";
}

TEST_F(Together, UpdatesComeAfterAllReadersOfWhatTheyChange) {
  const Value a = variable("a", 1), b = variable("b", 2), c = variable("c", 3), y = graph.constant(Tensor::full({2}, 0.5));
  graph.output("of a", exp(a));
  subtract_from(a, y);
  graph.output("of b", exp(b));
  subtract_from(b, c);  // which must have its old value still
  subtract_from(c, y);
  const Graph together = gathered();
  EXPECT_EQ(run(graph), (Sizes{1, 1, 1}));
  EXPECT_EQ(run(together), (Sizes{2, 1})) << "c after b, and a with b or c";
}

TEST_F(Together, AKernelThatTakesNoHalvesRunsOneByOne) {
  for (const char* name : {"a", "b"}) {
    const Value x = graph.variable(name, {DType::f16, {3}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1.5); });
    graph.output(name + std::string(" scaled"), scaled(x));
  }
  EXPECT_EQ(run(graph), (Sizes{1, 1}));
}

TEST_F(Together, StepsWaitForAllOfTheirCalls) {
  const Value a = graph.input("a", {2}), b = graph.input("b", {2});
  const Value first = exp(a), second = exp(b), third = scaled(first), fourth = scaled(second);
  graph.output("third", third);
  graph.output("fourth", exp(fourth));
  State state;
  EXPECT_EQ(graph::steps_before(graph::Executable(graph, state).steps()), (std::vector<std::vector<int>>{{}, {}, {1, 0}, {2}}));
}

TEST_F(Together, ProfilesAndTracesSayHowManyCallsAStepHas) {
  const Value a = variable("a", 1, {3}), b = variable("b", 2, {2, 5});
  graph.output("p", scaled(a));
  graph.output("q", scaled(b));
  subtract_from(a, graph.constant(Tensor::full({3}, 1)));
  State state;
  graph::Executable executable(graph, state);
  executable.run();
  const std::vector<graph::StepProfile> steps = graph::profile(executable, /*repeats=*/1);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].op, "scale_together");
  EXPECT_EQ(steps[0].types, "2 together: f32 -> f32");
  EXPECT_EQ(steps[0].bytes, 2 * (3 + 10) * 4);
  EXPECT_EQ(steps[1].types, "f32 3, f32 3");
  graph::Tracing tracing;
  executable.run();
  ASSERT_EQ(tracing.runs().at(0).steps->size(), 2u);
  EXPECT_EQ(tracing.runs()[0].steps->at(0).alive, (3 + 10) * 4);
}

TEST_F(Together, TheGradientIsTimedWithoutWhatTheForwardPassNeedsOfItsSteps) {
  graph.output("loss", scaled(variable("a", 1)));
  for (const char* name : {"b", "c"}) graph.output(name + std::string(" scaled"), scaled(variable(name, 2)));
  State state;
  graph::Executable executable(graph, state);
  executable.run();
  EXPECT_EQ(batches, Sizes{3});
  batches.clear();
  (void)graph::time_gradient(executable, "loss", /*warmup=*/0, /*repeats=*/1);
  EXPECT_EQ(batches, (Sizes{1, 2}));
}

TEST_F(Together, TheFirstNumberThatIsNotFiniteIsFoundInItsCall) {
  const Value a = variable("a", 1), b = variable("b", 3e38), c = variable("c", 3e38);
  for (const Value& x : {a, b, c}) graph.output(concat("of ", x.id()), scaled(x));
  State state;
  graph::Executable executable(graph, state);
  int seen = 0;
  const auto found = graph::find_non_finite(executable, {}, [&](const graph::Call&) { ++seen; });
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->where.starts_with("operator scale_together of \"b\", %")) << found->where;
  EXPECT_EQ(seen, 3);
}

TEST_F(Together, NoStepIsOfThePreparationInPart) {
  const Value x = graph.input("x", {2}), y = graph.input("y", {2}), v = variable("v", 1), w = variable("w", 1);
  Values four;
  for (const Value& value : {v, w, x, y}) four.push_back(scaled(value));
  graph.output("four", concatenate(four, 0));
  State state;
  const graph::Executable executable(graph, state);
  const auto calls = [](const std::vector<graph::Step>& steps) {
    Sizes sizes;
    for (const graph::Step& step : steps) {
      if (step.op->name == "scale_together") sizes.push_back(step.calls.size());
    }
    return sizes;
  };
  EXPECT_EQ(calls(executable.preparation()), Sizes{2});
  EXPECT_EQ(calls(executable.steps()), Sizes{2});
}

TEST_F(Together, ProgramsGather) {
  Value x = graph.input("x", {2});
  for (int i = 0; i < 3; ++i) x = exp(x * scaled(variable(concat("w", i), 0.1)));
  const Values many(64, x);
  graph.output("y", exp(concatenate(many, 0)));
  Program program(graph, std::make_shared<State>());
  program.run({{"x", Tensor::full({2}, 1)}});
  EXPECT_EQ(batches, Sizes{3});
}

}  // namespace
}  // namespace frit
