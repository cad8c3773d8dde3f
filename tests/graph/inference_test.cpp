// Batch norms at inference become part of what gives their input, or elementwise operations; the results are those of the norm with its
// running statistics.

#include <gtest/gtest.h>

#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

class FoldedBatchNorm : public testing::Test {
 protected:
  Value variable(const Shape& shape) {
    const std::uint64_t number = next_++;
    const auto draw = [number](const Tensor& tensor, std::uint64_t) { fill_uniform(tensor, 0.5, 1.5, 7, number); };
    return graph_.variable(concat("v", number), {DType::f64, shape}, draw);
  }
  Value batch_norm_of(Value x) {
    const Value inputs[] = {x, variable({x.dim(1)}), variable({x.dim(1)}), variable({x.dim(1)}), variable({x.dim(1)})};
    return ops::emit("batch_norm", inputs, ops::BatchNormAttributes{.training = false})[0];
  }
  Tensor run(Graph graph) const {
    Program program(std::move(graph), std::make_shared<State>());
    const Tensor x = Tensor::empty({2, 4, 5, 6}, DType::f64);
    fill_normal(x, 0, 1, 1, 1);
    return program.run({{"x", x}}).output("y").clone();
  }
  /// Returns the operators of the graph for inference.
  std::map<std::string, int> expect_same_results() const {
    const Graph inference = graph::for_inference(graph_);
    const std::vector<double> expected = run(graph_).to_vector<double>(), found = run(inference).to_vector<double>();
    EXPECT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])));
    std::map<std::string, int> operators;
    for (const graph::Node* node : inference.all(graph::NodeKind::operation)) ++operators[node->op->name];
    EXPECT_EQ(operators["batch_norm"], 0);
    return operators;
  }
  /// That work on images, not on weights.
  int image_operations() const {
    const Graph inference = graph::for_inference(graph_);
    int count = 0;
    for (const graph::Node* node : inference.all(graph::NodeKind::operation)) {
      const Shape& shape = inference.type(node->outputs[0]).shape;
      count += shape.rank() == 4 && shape[0] == 2;
    }
    return count;
  }

  Graph graph_;
  Value x_ = graph_.input("x", {2, 4, 5, 6}, DType::f64);
  std::uint64_t next_ = 1;
};

TEST_F(FoldedBatchNorm, IsPartOfTheConvolution) {
  const Value y = conv2d(x_, variable({6, 4, 3, 3}));
  graph_.output("y", relu(batch_norm_of(conv2d(batch_norm_of(y), variable({5, 6, 2, 2}), variable({5})))));
  EXPECT_EQ(expect_same_results()["conv2d"], 2);
  EXPECT_EQ(image_operations(), 3);  // with the activation
}

TEST_F(FoldedBatchNorm, IsPartOfAConvolutionInGroups) {
  graph_.output("y", batch_norm_of(conv2d(x_, variable({6, 2, 3, 3}), {}, {.groups = 2})));
  expect_same_results();
  EXPECT_EQ(image_operations(), 1);
}

TEST_F(FoldedBatchNorm, IsPartOfATransposedConvolution) {
  const Value y = batch_norm_of(conv_transpose2d(x_, variable({4, 3, 2, 2}), variable({6}), {.stride = {2}, .groups = 2}));
  graph_.output("y", batch_norm_of(conv_transpose2d(y, variable({6, 5, 2, 3}))));
  expect_same_results();
  EXPECT_EQ(image_operations(), 2);
}

TEST_F(FoldedBatchNorm, IsComputedByItselfWhereTheConvolutionHasOtherReaders) {
  const Value y = conv2d(x_, variable({6, 4, 3, 3}));
  graph_.output("y", batch_norm_of(y));
  graph_.output("z", sum(y, {0, 1, 2, 3}));
  expect_same_results();
  EXPECT_EQ(image_operations(), 3);
}

TEST_F(FoldedBatchNorm, IsComputedByItselfAfterOtherOperators) {
  graph_.output("y", batch_norm_of(relu(x_)));
  expect_same_results();
  EXPECT_EQ(image_operations(), 3);
}

}  // namespace
}  // namespace frit
