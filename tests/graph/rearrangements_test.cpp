// Elementwise operations before and after a rearrangement of images are computed with it.

#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/graph/choose_lowerings.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

using graph::NodeKind;

/// A transposed convolution in sub-pixel form with an activation, and its gradients.
Graph trained(const Shape& input, const Shape& weight) {
  Graph graph;
  const Value x = graph.input("x", input), w = graph.input("w", weight);
  Dims per_channel = Dims::filled(weight.rank() - 1, 1);
  per_channel[0] = weight[1];
  const Value bias = graph.input("bias", Shape(per_channel));
  const ConvolutionOptions options{.stride = {2}, .padding = {1}};
  const Value y = weight.rank() == 4 ? conv_transpose2d(x, w, {}, options) : conv_transpose3d(x, w, {}, options);
  graph.output("z", gelu(y + bias) * 2.0);
  graph = graph::apply_lowerings(graph, [](const graph::Node&) { return "sub-pixel"; });
  const Value z = graph.output_value("z");
  Values inputs;
  for (const char* name : {"x", "w"}) inputs.push_back(graph.value(graph.find(NodeKind::input, name)->outputs[0]));
  const Values gradients = gradient(sum(square(z)), inputs);
  graph.output("dx", gradients[0]);
  graph.output("dw", gradients[1]);
  return graph;
}

std::map<std::string, Tensor> results_of(const Graph& graph) {
  Bindings inputs;
  for (const graph::Node* node : graph.all(NodeKind::input)) {
    const TensorType& type = graph.type(node->outputs[0]);
    inputs[node->name] = Tensor::empty(type.shape, type.dtype);
    fill_normal(inputs[node->name], 0, 1, 3, stream_of(node->name));
  }
  State state;
  graph::Executable executable(graph, state);
  executable.run(inputs);
  std::map<std::string, Tensor> results;
  for (const graph::Output& output : graph.outputs()) results[output.name] = executable.output(output.name).clone();
  return results;
}

TEST(Rearrangements, TakeInWhatIsBeforeAndAfterThem) {
  const std::pair<Shape, Shape> cases[] = {{{2, 3, 5, 4}, {3, 6, 3, 4}}, {{1, 2, 3, 4, 2}, {2, 5, 3, 3, 3}}};
  for (const auto& [input, weight] : cases) {
    const Graph graph = trained(input, weight), clean = graph::apply(graph::cleanup_pipeline(), graph);
    const std::string text = graph::to_text(clean);
    EXPECT_NE(text.find("centre=depth_to_space"), std::string::npos) << text;
    EXPECT_NE(text.find("centre=space_to_depth"), std::string::npos) << text;
    EXPECT_EQ(text.find("= depth_to_space("), std::string::npos) << text;
    const auto expected = results_of(graph), found = results_of(clean);
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-5, largest_finite(tensor))) << name;
  }
}

/// Channels in groups, that become groups of what was in one place of each.
Value shuffled(Value x, std::int64_t groups) {
  const std::int64_t height = x.dim(2), width = x.dim(3);
  return reshape(transpose(reshape(x, Shape{x.dim(0), groups, -1, height, width}), 1, 2), x.shape());
}

TEST(Rearrangements, OfChannelsAreOneOperatorInEitherDirection) {
  Graph graph;
  const Value x = graph.input("x", {2, 58, 3, 4});
  graph.output("y", shuffled(x, 2) * 3.0);
  graph.output("dx", gradient(sum(square(shuffled(x, 2) * graph.input("factor", {2, 58, 3, 4}))), Values{x})[0]);
  Graph fused = graph::apply(graph::forward_pipeline(), [] {
    Graph forward;
    const Value input = forward.input("x", {2, 58, 3, 4}), factor = forward.input("factor", {2, 58, 3, 4});
    forward.output("y", shuffled(input, 2) * 3.0);
    forward.output("loss", sum(square(shuffled(input, 2) * factor)));
    return forward;
  }());
  const Value input = fused.value(fused.find(NodeKind::input, "x")->outputs[0]);
  fused.output("dx", gradient(fused.output_value("loss"), Values{input})[0]);
  const std::string text = graph::to_text(fused);
  EXPECT_NE(text.find("sizes=2x29 axes=1x0"), std::string::npos) << text;
  EXPECT_NE(text.find("sizes=29x2 axes=1x0"), std::string::npos) << text;
  EXPECT_EQ(text.find("permute("), std::string::npos) << text;
  const auto expected = results_of(graph), found = results_of(fused);
  for (const char* name : {"y", "dx"}) EXPECT_TRUE(same(found.at(name), expected.at(name))) << name;
}

TEST(Rearrangements, PixelShufflesAreOneOperatorInTheOrderThatItPrefers) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 4, 5}), w = graph.input("w", {24, 3, 3, 3}), bias = graph.input("bias", {24});
  const Value shuffled = pixel_shuffle(conv2d(x, w, bias, {.padding = {1}}), 2);
  graph.output("y", shuffled);
  graph.output("back", pixel_unshuffle(square(shuffled), 2));
  graph.output("alone", pixel_shuffle(graph.input("z", {1, 18, 2, 3}), 3));
  std::map<std::string, TensorType> types;
  for (const graph::Node* node : graph.all(NodeKind::input)) types[node->name] = graph.type(node->outputs[0]);
  const Graph fused = graph::apply(graph::forward_pipeline(), graph::specialize(graph, types));
  const std::string text = graph::to_text(fused);
  EXPECT_NE(text.find("space_to_depth("), std::string::npos) << text;
  for (const graph::Node* node : fused.all(NodeKind::operation)) {
    if (node->op->name != "depth_to_space") continue;
    const bool of_convolution = fused.producer(node->inputs[0]).kind == NodeKind::operation;
    EXPECT_EQ(node->attributes.text().find("channels_first=true") == std::string::npos, of_convolution) << text;
  }
  const auto expected = results_of(graph), found = results_of(fused);
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-6, largest_finite(tensor))) << name;
}

TEST(Rearrangements, PixelShufflesPutChannelsWherePyTorchDoes) {
  Graph graph;
  const Value x = graph.input("x", {1, 18, 2, 3});
  graph.output("x", x);
  graph.output("shuffled", pixel_shuffle(x, 3));
  graph.output("back", pixel_unshuffle(pixel_shuffle(x, 3), 3));
  const auto results = results_of(graph);
  const std::vector<double> given = results.at("x").to_vector<double>(), shuffled = results.at("shuffled").to_vector<double>();
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t column = 0; column < 9; ++column) {
        const std::size_t channel = (c * 3 + row % 3) * 3 + column % 3;
        EXPECT_EQ(shuffled[(c * 6 + row) * 9 + column], given[(channel * 2 + row / 3) * 3 + column / 3]);
      }
    }
  }
  EXPECT_EQ(results.at("back").to_vector<double>(), given);
}

/// A part of what lies next to the channels, or of the batch, is no matter of theirs.
TEST(Rearrangements, OfOtherAxesStayAsTheyAre) {
  Graph graph;
  const Value x = graph.input("x", {4, 6, 4, 6});
  graph.output("space", reshape(transpose(reshape(x, Shape{4, 6, 2, 2, 6}), 2, 3), x.shape()));
  graph.output("batch", reshape(transpose(reshape(x, Shape{2, 2, 6, 4, 6}), 0, 1), x.shape()));
  graph.output("mixed", reshape(transpose(reshape(x, Shape{4, 6, 1, 4, 6}), 1, 3), x.shape()));
  EXPECT_EQ(graph::to_text(graph::fuse(graph)), graph::to_text(graph));
}

}  // namespace
}  // namespace frit
