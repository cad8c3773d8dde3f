#include "frit/graph/pipeline.h"
#include "frit/ops/linear/attention.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

/// Of the output and of the gradients of all inputs.
std::vector<std::vector<float>> results(const Graph& given, const std::function<Graph(const Graph&)>& pass) {
  Graph graph = pass(given);
  Values inputs;
  for (const graph::Node* node : graph.all(NodeKind::input)) inputs.push_back(graph.value(node->outputs[0]));
  const Value y = graph.value(graph.outputs()[0].value);
  const Values gradients = gradient(sum(y * y * y), inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  State state;
  graph::Executable executable(graph, state);
  executable.run(random_inputs(graph));
  std::vector<std::vector<float>> found;
  for (const graph::Output& output : executable.graph().outputs()) found.push_back(executable.output(output.name).to_vector<float>());
  return found;
}

Graph aligned(const Graph& graph) { return graph::align_scores(graph, 0); }

class AlignedScores : public testing::Test {
 protected:
  void expect_same_results() {
    const auto expected = results(graph, [](const Graph&g) { return g; }), found = results(graph, aligned);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].size(), expected[i].size());
      for (std::size_t k = 0; k < found[i].size(); ++k) ASSERT_NEAR(found[i][k], expected[i][k], 1e-5) << i << ", " << k;
    }
  }

  Graph graph;
  Value query = graph.input("query", {2, 3, 5, 4}), key = graph.input("key", {2, 3, 7, 4}), value = graph.input("value", {2, 3, 7, 6});
};

TEST_F(AlignedScores, AreThoseOfMoreKeysThatHaveNoWeight) {
  graph.output("y", scaled_dot_product_attention(query, key, value));
  EXPECT_EQ(graph::to_text(aligned(graph)).find("2x3x5x7"), std::string::npos) << "rows of 8, which are 32 bytes";
  EXPECT_EQ(count(aligned(graph), "pad"), 2u);
  expect_same_results();
}

TEST_F(AlignedScores, KeepWhatIsDoneToThemBeforeTheSoftmax) {
  const Value bias = graph.input("bias", {3, 5, 7}), each = graph.input("each", {3, 5, 1});
  graph.output("y", matmul(softmax((matmul(query, transpose(key, 2, 3)) + bias) * each, -1), value));
  EXPECT_EQ(count(aligned(graph), "pad"), 3u);
  expect_same_results();
}

TEST_F(AlignedScores, KeepMasks) {
  const Tensor some = Tensor::full({5, 7}, 1, DType::u8);
  some.slice(0, 0, 2).slice(1, 3, 6).fill(0);
  graph.output("y", scaled_dot_product_attention(query, key, value, {.mask = graph.constant(some), .causal = true}));
  EXPECT_NE(graph::to_text(aligned(graph)), graph::to_text(graph));
  expect_same_results();
}

TEST_F(AlignedScores, StayAsTheyAreWhereOthersReadThem) {
  const Value weights = attention_weights(query, key);
  graph.output("y", matmul(weights, value));
  graph.output("weights", weights);
  EXPECT_EQ(graph::to_text(aligned(graph)), graph::to_text(graph));
}

TEST_F(AlignedScores, StayAsTheyAreAlongAnotherAxis) {
  graph.output("y", matmul(softmax(matmul(query, transpose(key, 2, 3)), 1), value));
  EXPECT_EQ(graph::to_text(aligned(graph)), graph::to_text(graph));
}

TEST_F(AlignedScores, OfWholeVectorsStayAsTheyAre) {
  graph.output("y", scaled_dot_product_attention(query, pad(key, Dims{0, 0, 0, 0}, Dims{0, 0, 1, 0}),
                                                 pad(value, Dims{0, 0, 0, 0}, Dims{0, 0, 1, 0})));
  EXPECT_EQ(graph::to_text(aligned(graph)), graph::to_text(graph));
  EXPECT_EQ(graph::to_text(graph::align_scores(graph)), graph::to_text(graph));
}

}  // namespace
}  // namespace frit
