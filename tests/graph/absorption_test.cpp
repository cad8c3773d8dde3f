#include <gtest/gtest.h>

#include "frit/graph/pipeline.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

class AbsorbedPermutations : public testing::Test {
 protected:
  void expect_same_results() const {
    const auto results = [](const Graph& g) {
      State state;
      graph::Executable executable(g, state);
      executable.run(random_inputs(g));
      return executable.output("y").to_vector<double>();
    };
    EXPECT_EQ(results(graph::absorb(graph)), results(graph));
  }
  std::size_t permutations() const { return count(graph::absorb(graph), "permute"); }

  Graph graph;
  Value a = graph.input("a", {2, 3, 5, 4}, DType::f64), b = graph.input("b", {2, 3, 7, 4}, DType::f64);
};

TEST_F(AbsorbedPermutations, AreReadByAProductAsTheyWereBefore) {
  graph.output("y", matmul(a, transpose(b, 2, 3) * 0.5));
  EXPECT_EQ(permutations(), 0u);
  expect_same_results();
}

TEST_F(AbsorbedPermutations, AreReadAsTheyComeWhereOthersNeedThem) {
  const Value turned = transpose(b, 2, 3);
  graph.output("y", matmul(a, turned));
  graph.output("turned", turned);
  EXPECT_EQ(permutations(), 1u);
}

TEST_F(AbsorbedPermutations, StayWhereTheOperatorCannotReadThemOtherwise) {
  const Value heads = permute(graph.input("heads", {4, 7, 3, 2}, DType::f64), {3, 2, 0, 1});
  graph.output("y", matmul(a, heads) + matmul(transpose(graph.input("c", {2, 3, 4, 5}, DType::f64), 2, 3), heads));
  EXPECT_EQ(permutations(), 2u);
  expect_same_results();
}

TEST_F(AbsorbedPermutations, StayWhereElementsDifferInWhatIsDoneToThem) {
  graph.output("y", matmul(a, transpose(b, 2, 3) * graph.input("each", {7}, DType::f64)));
  EXPECT_EQ(permutations(), 1u);
  expect_same_results();
}

}  // namespace
}  // namespace frit
