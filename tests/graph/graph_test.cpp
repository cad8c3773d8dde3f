#include "frit/graph/graph.h"

#include <gtest/gtest.h>

#include <atomic>

#include "frit/graph/program.h"
#include "frit/ops/elementwise/arithmetic.h"

namespace frit {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

TEST(Graph, NamesInputsAndVariablesOnceTogether) {
  const auto zeros = [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); };
  Graph graph;
  graph.input("x", {2});
  graph.variable("w", {DType::f32, {2}}, zeros);
  EXPECT_EQ(message_of([&] { graph.input("x", {3}); }), "the graph has an input or variable named \"x\" already");
  EXPECT_EQ(message_of([&] { graph.variable("x", {DType::f32, {2}}, zeros); }), "the graph has an input or variable named \"x\" already");
  EXPECT_EQ(message_of([&] { graph.input("w", {2}); }), "the graph has an input or variable named \"w\" already");
  EXPECT_EQ(message_of([&] { graph.variable("w", {DType::f32, {2}}, zeros); }), "the graph has an input or variable named \"w\" already");
  EXPECT_EQ(graph.find(graph::NodeKind::input, "w"), nullptr);
  EXPECT_EQ(graph.find(graph::NodeKind::variable, "w")->name, "w");
  EXPECT_EQ(graph.nodes().size(), 2u);
}

/// How often the passes have asked for the types of an operator of the test's own.
std::atomic<int> asked = 0;

Value counted(Value x) {
  if (!ops::registry().contains("counted")) {
    ops::registry().add({
        .name = "counted",
        .summary = "x",
        .inputs = {"x"},
        .infer =
            [](const ops::InferContext& call) {
              ++asked;
              return ops::infer_same(call);
            },
        .no_gradient = "it is only counted",
        .cpu = {[](const ops::KernelContext& call) { copy(call.outputs[0], call.inputs[0]); }},
        .dtypes = {DType::f32},
        .samples = [] { return std::vector<ops::Sample>{{.inputs = {Shape{2}}}}; },
    });
  }
  return ops::emit_one("counted", {x});
}

int asked_to_compile(int operations) {
  Graph graph;
  Value x = graph.input("x", {2});
  for (int i = 0; i < operations; ++i) x = counted(x) + 1.0;
  graph.output("y", x);
  Program program(graph, std::make_shared<State>());
  asked = 0;
  program.compile({{"x", {DType::f32, {2}}}});
  return asked;
}

TEST(Graph, IsCompiledWithTheSameWorkForEachOperationHoweverManyThereAre) {
  const int few = asked_to_compile(500), many = asked_to_compile(2000);
  EXPECT_GE(few, 500);
  EXPECT_LE(many, 4 * few + 8);
}

}  // namespace
}  // namespace frit
