#include "frit/graph/find_non_finite.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/graph/program.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"

namespace frit::find_non_finite_test {
namespace {

struct Chain {
  Graph graph;
  std::unique_ptr<State> state = std::make_unique<State>();
  std::unique_ptr<graph::Executable> executable;

  Chain() {
    const Value x = graph.input("x", {4});
    const Value p = graph.variable(
        "p", {DType::f32, {4}}, [](const Tensor& t, std::uint64_t) { t.fill(1); }, true);
    graph.output("y", exp(log(x * p) * 2.0));
    executable = std::make_unique<graph::Executable>(graph, *state);
  }
  std::optional<graph::NonFinite> find(const std::vector<float>& x) const {
    return graph::find_non_finite(*executable, {{"x", Tensor::from(x, {4})}});
  }
};

TEST(FindNonFinite, FindsNothingInAFiniteRun) { EXPECT_FALSE(Chain().find({1, 2, 3, 4})); }

TEST(FindNonFinite, NamesTheFirstOperator) {
  const auto found = Chain().find({1, 2, -3, 0});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->where.starts_with("operator log, %")) << found->where;
  EXPECT_TRUE(found->text().ends_with(": 2 of 4 values are NaN or infinite, the first at 2")) << found->text();
}

TEST(FindNonFinite, NamesAnInputOrAVariable) {
  const auto input = Chain().find({1, INFINITY, 3, 4});
  ASSERT_TRUE(input);
  EXPECT_EQ(input->where, "input \"x\"");
  EXPECT_EQ(input->range.least, 1);
  EXPECT_EQ(input->range.largest, 4);
  const Chain chain;
  chain.state->set("p", Tensor::from<float>({1, 1, 1, NAN}, {4}));
  const auto variable = chain.find({1, 2, 3, 4});
  ASSERT_TRUE(variable);
  EXPECT_EQ(variable->where, "variable \"p\"");
}

TEST(FindNonFinite, NamesTheVariablesThatAnOperatorReads) {
  const auto found = Chain().find({1, 2, 3, 3e38f});
  EXPECT_FALSE(Chain().find({1, 2, 3, 1e19f}).has_value());
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->where.starts_with("operator exp, ")) << found->where;
  const Chain chain;
  chain.state->set("p", Tensor::from<float>({1, 1, 1, 10}, {4}));
  const auto product = chain.find({1, 2, 3, 3e38f});
  ASSERT_TRUE(product);
  EXPECT_TRUE(product->where.starts_with("operator multiply of \"p\", ")) << product->where;
}

TEST(Program, PlansWithoutAllocating) {
  Graph graph;
  graph.output("y", exp(graph.input("x", {4}) * 2.0));
  Program program(graph, std::make_shared<State>());
  const std::map<std::string, TensorType> inputs = {{"x", {DType::f32, {1'000'000}}}};
  const graph::MemoryPlan plan = program.plan(inputs);
  EXPECT_EQ(plan.arena_bytes, program.compile(inputs).memory_plan().arena_bytes);
  EXPECT_GE(plan.arena_bytes, 4'000'000);
  EXPECT_GT(program.plan({{"x", {DType::f32, {std::int64_t{1} << 40}}}}).arena_bytes, std::int64_t{1} << 42);
}

}  // namespace
}  // namespace frit::find_non_finite_test
