// The lowerings of convolutions against the convolutions as they are.

#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/graph/choose_lowerings.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/convolution/convolution_graphs.h"

namespace frit::convolution_lowerings_test {
namespace {

using Options = ConvolutionOptions;
using convolution_graphs::count;
using convolution_graphs::expect_equal;
using convolution_graphs::run_with_gradients;
using graph::NodeKind;

struct Call {
  std::vector<Shape> shapes;  ///< input, weight and perhaps bias
  Options options = {};
};

Graph graph_of(const char* op, const Call& call) {
  Graph graph;
  Values inputs;
  for (const Shape& shape : call.shapes) inputs.push_back(graph.input(concat(inputs.size()), shape, DType::f64));
  graph.output("result", ops::emit_one(op, {inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : Value()}, call.options));
  return graph;
}

Graph with_lowering(const Graph& graph, const std::string& name) {
  return graph::apply_lowerings(graph, [&](const graph::Node&) { return name; });
}

TEST(ConvolutionLowerings, PaddedChannelsChangeNothing) {
  const std::pair<const char*, Call> calls[] = {{"conv2d", {{{2, 3, 5, 7}, {4, 3, 3, 2}, {4}}}},
                                                {"conv2d", {{{1, 6, 6, 5}, {3, 6, 2, 3}}, {.stride = {2}, .padding = {1, 2}}}},
                                                {"conv2d", {{{2, 1, 7, 7}, {5, 1, 3, 3}, {5}}, {.padding = {2}, .dilation = {2, 1}}}},
                                                {"conv3d", {{{2, 3, 3, 4, 5}, {2, 3, 2, 3, 2}, {2}}}},
                                                {"conv3d", {{{1, 5, 4, 3, 4}, {3, 5, 3, 2, 2}}, {.stride = {2, 1, 3}, .padding = {1}}}},
                                                {"conv3d", {{{0, 3, 3, 3, 3}, {2, 3, 3, 3, 3}, {2}}}}};
  for (const auto& [op, call] : calls) {
    for (const std::int64_t multiple : {4, 8}) {
      SCOPED_TRACE(concat(op, ' ', call.shapes[0], " to ", multiple));
      const Graph plain = graph_of(op, call), padded = with_lowering(plain, concat("channels padded to ", multiple));
      EXPECT_EQ(count(padded, "pad"), 2u) << graph::to_text(padded);
      EXPECT_EQ(count(padded, op), 1u);
      expect_equal(plain, padded);
    }
  }
}

TEST(ConvolutionLowerings, BlocksOfAStrideAreChannels) {
  const std::pair<const char*, Call> calls[] = {
      {"conv2d", {{{2, 3, 9, 12}, {4, 3, 7, 7}, {4}}, {.stride = {2}, .padding = {3}}}},
      {"conv2d", {{{1, 1, 9, 8}, {3, 1, 5, 5}}, {.stride = {2}, .padding = {1, 2}}}},
      {"conv3d", {{{2, 3, 4, 7, 6}, {4, 3, 3, 7, 7}, {4}}, {.stride = {1, 2, 2}, .padding = {1, 3, 3}}}},
      {"conv3d", {{{1, 1, 4, 5, 4}, {2, 1, 3, 3, 3}, {2}}, {.stride = {2}, .padding = {1}}}},
      {"conv2d", {{{0, 1, 8, 8}, {2, 1, 5, 5}, {2}}, {.stride = {2}, .padding = {2}}}}};
  for (const auto& [op, call] : calls) {
    SCOPED_TRACE(concat(op, ' ', call.shapes[0], ' ', call.shapes[1]));
    const Graph plain = graph_of(op, call), lowered = with_lowering(plain, "blocks as channels");
    EXPECT_EQ(count(lowered, "space_to_depth"), 2u) << graph::to_text(lowered);
    EXPECT_EQ(count(lowered, op), 1u);
    expect_equal(plain, lowered);
  }
  const std::pair<const char*, Call> others[] = {
      {"conv2d", {{{2, 3, 9, 12}, {4, 3, 7, 7}}}},  // no stride
      {"conv2d", {{{2, 3, 19, 22}, {4, 3, 7, 7}}, {.stride = {2}, .dilation = {2}}}},
      {"conv2d", {{{2, 5, 9, 12}, {4, 5, 7, 7}}, {.stride = {2}}}},                  // many channels
      {"conv2d", {{{2, 4, 9, 12}, {4, 4, 3, 3}}, {.stride = {2}, .padding = {1}}}},  // as many products
      {"conv2d", {{{2, 1, 11, 12}, {4, 1, 8, 8}}, {.stride = {4}}}}};                // elements beyond the last block
  for (const auto& [op, call] : others) {
    const Graph plain = graph_of(op, call);
    EXPECT_EQ(graph::to_text(with_lowering(plain, "blocks as channels")), graph::to_text(plain)) << call.shapes[0];
  }
}

TEST(ConvolutionLowerings, GroupsAreOneWithZerosBetweenThem) {
  const std::pair<const char*, Call> calls[] = {{"conv2d", {{{2, 72, 5, 4}, {24, 24, 3, 3}, {24}}, {.padding = {1}, .groups = 3}}},
                                                {"conv2d", {{{1, 8, 5, 4}, {16, 2, 3, 3}}, {.groups = 4}}},
                                                {"conv3d", {{{1, 24, 3, 4, 3}, {24, 12, 2, 3, 1}}, {.stride = {1, 2, 1}, .groups = 2}}}};
  for (const auto& [op, call] : calls) {
    const Graph plain = graph_of(op, call), lowered = with_lowering(plain, "groups as one");
    EXPECT_EQ(count(lowered, "where"), 1u) << graph::to_text(lowered);
    expect_equal(plain, lowered);
  }
  const Call others[] = {{{{2, 32, 5, 4}, {32, 16, 3, 3}}, {.groups = 2}},  // the library has kernels for those
                         {{{2, 9, 5, 4}, {9, 3, 3, 3}}, {.groups = 3}},     // no vectors
                         {{{2, 8, 5, 4}, {8, 1, 3, 3}}, {.groups = 8}}};
  for (const Call& call : others) {
    const Graph plain = graph_of("conv2d", call);
    EXPECT_EQ(graph::to_text(with_lowering(plain, "groups as one")), graph::to_text(plain)) << call.shapes[1];
  }
}

TEST(ConvolutionLowerings, WholeImagesAndSinglePixelsAreMultipliedAsMatrices) {
  const std::pair<const char*, Call> images[] = {{"conv2d", {{{3, 2, 4, 5}, {6, 2, 4, 5}, {6}}}},
                                                 {"conv2d", {{{2, 3, 4, 4}, {1, 3, 4, 4}}, {.stride = {2}}}},
                                                 {"conv2d", {{{0, 3, 4, 4}, {1, 3, 4, 4}}}},
                                                 {"conv3d", {{{2, 3, 2, 1, 3}, {4, 3, 2, 1, 3}, {4}}}}};
  for (const auto& [op, call] : images) {
    const Graph plain = graph_of(op, call), lowered = with_lowering(plain, "whole images");
    EXPECT_EQ(count(lowered, "linear"), 1u) << graph::to_text(lowered);
    EXPECT_EQ(count(lowered, op), 0u);
    expect_equal(plain, lowered);
  }
  const std::pair<const char*, Call> pixels[] = {{"conv_transpose2d", {{{3, 4, 1, 1}, {4, 2, 3, 5}, {2}}, {.stride = {2}}}},
                                                 {"conv_transpose3d", {{{2, 4, 1, 1, 1}, {4, 3, 2, 3, 2}}}}};
  for (const auto& [op, call] : pixels) {
    const Graph plain = graph_of(op, call), lowered = with_lowering(plain, "single pixels");
    EXPECT_EQ(count(lowered, "matmul"), 1u) << graph::to_text(lowered);
    EXPECT_EQ(count(lowered, op), 0u);
    expect_equal(plain, lowered);
  }
  const std::pair<const char*, Call> others[] = {
      {"conv2d", {{{2, 3, 4, 5}, {4, 3, 4, 4}}}},
      {"conv2d", {{{2, 3, 4, 4}, {4, 3, 4, 4}}, {.padding = {1}}}},
      {"conv2d", {{{2, 4, 4, 4}, {4, 2, 4, 4}}, {.groups = 2}}},
      {"conv2d", {{{2, 4, 1, 1}, {4, 4, 1, 1}}}},
      {"conv_transpose2d", {{{2, 4, 1, 2}, {4, 2, 3, 3}}}},
      {"conv_transpose2d", {{{2, 4, 1, 1}, {4, 2, 3, 3}}, {.dilation = {2}}}},
      {"conv_transpose2d", {{{2, 4, 1, 1}, {4, 2, 3, 3}}, {.padding = {1}}}},
      {"conv_transpose2d", {{{2, 4, 1, 1}, {4, 2, 3, 3}}, {.stride = {2}, .output_padding = {1}}}},
  };
  for (const auto& [op, call] : others) {
    const Graph plain = graph_of(op, call);
    for (const char* lowering : {"whole images", "single pixels"}) {
      EXPECT_EQ(graph::to_text(with_lowering(plain, lowering)), graph::to_text(plain)) << op << ' ' << call.shapes[1];
    }
  }
}

TEST(ConvolutionLowerings, FewChannelsFillVectors) {
  const Call calls[] = {{{{4, 3, 80, 127}, {8, 3, 3, 3}, {8}}}, {{{4, 7, 96, 120}, {16, 7, 3, 3}}, {.padding = {1, 2}}}};
  for (const Call& call : calls) {
    const Graph plain = graph_of("conv2d", call), filled = with_lowering(plain, "few channels in vectors");
    EXPECT_EQ(count(filled, "pad"), 2u) << graph::to_text(filled);
    EXPECT_EQ(count(filled, "conv2d"), 1u);
    expect_equal(plain, filled);
  }
  const std::pair<const char*, Call> others[] = {
      {"conv2d", {{{4, 3, 80, 127}, {12, 3, 3, 3}}}},                   // no whole vectors of outputs
      {"conv2d", {{{4, 9, 80, 127}, {16, 9, 3, 3}}}},                   // many channels
      {"conv2d", {{{4, 3, 80, 60}, {8, 3, 3, 3}}}},                     // a narrow image
      {"conv2d", {{{1, 3, 80, 127}, {8, 3, 3, 3}}}},                    // a small one
      {"conv2d", {{{4, 3, 80, 127}, {8, 3, 3, 3}}, {.padding = {3}}}},  // only padding at the edge
      {"conv2d", {{{4, 3, 160, 254}, {8, 3, 3, 3}}, {.stride = {2}}}},
      {"conv2d", {{{4, 3, 80, 127}, {8, 3, 5, 5}}}},
      {"conv3d", {{{4, 3, 80, 3, 127}, {8, 3, 3, 3, 3}}}}};
  for (const auto& [op, call] : others) {
    const Graph plain = graph_of(op, call);
    EXPECT_EQ(graph::to_text(with_lowering(plain, "few channels in vectors")), graph::to_text(plain)) << call.shapes[0];
  }
}

TEST(ConvolutionLowerings, SubpixelLoweringIsTheTransposedConvolution) {
  const std::vector<Call> flat = {
      {{{2, 3, 3, 4}, {3, 4, 3, 3}, {4}}, {.stride = {2}, .padding = {1}}},
      {{{2, 3, 3, 4}, {3, 2, 3, 3}}, {.stride = {2}, .padding = {1}, .output_padding = {1}}},
      {{{1, 2, 4, 3}, {2, 3, 4, 5}, {3}}, {.stride = {2, 3}, .padding = {3, 1}}},
      {{{1, 4, 3, 3}, {4, 2, 1, 2}, {2}}, {.stride = {3}, .output_padding = {2, 0}}},  // the kernel is smaller than the stride
      {{{2, 2, 3, 2}, {2, 3, 7, 2}, {3}}, {.stride = {2, 1}, .padding = {4, 0}}},
      {{{1, 1, 5, 1}, {1, 1, 3, 3}}, {.stride = {1, 2}, .padding = {2, 0}, .output_padding = {0, 1}}},
      {{{0, 2, 3, 3}, {2, 3, 3, 3}, {3}}, {.stride = {2}}}};
  const std::vector<Call> deep = {
      {{{2, 3, 2, 3, 4}, {3, 4, 3, 3, 3}, {4}}, {.stride = {2}, .padding = {1}}},
      {{{1, 2, 2, 2, 3}, {2, 3, 2, 3, 4}, {3}}, {.stride = {2, 3, 1}, .padding = {0, 1, 2}, .output_padding = {1, 2, 0}}},
      {{{1, 3, 3, 2, 2}, {3, 2, 1, 2, 5}}, {.stride = {3, 2, 2}, .padding = {0, 0, 2}, .output_padding = {0, 1, 1}}}};
  const auto check = [](const char* op, const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      SCOPED_TRACE(concat(op, ' ', call.shapes[0], ' ', call.shapes[1], ' ', fields_text(call.options)));
      const Graph plain = graph_of(op, call), subpixel = with_lowering(plain, "sub-pixel");
      EXPECT_EQ(count(subpixel, op), 0u) << graph::to_text(subpixel);
      for (const char* part : {"im2col", "subpixel_weight", "depth_to_space"}) EXPECT_EQ(count(subpixel, part), 1u) << part;
      expect_equal(plain, subpixel);
    }
  };
  check("conv_transpose2d", flat);
  check("conv_transpose3d", deep);
}

TEST(ConvolutionLowerings, FewResultsOfAStrideAreMadeInBlocks) {
  const std::pair<const char*, Call> calls[] = {
      {"conv_transpose2d", {{{2, 24, 5, 4}, {24, 3, 4, 4}, {3}}, {.stride = {2}, .padding = {1}}}},
      {"conv_transpose2d", {{{1, 20, 3, 5}, {20, 3, 3, 3}}, {.stride = {2}, .padding = {1}, .output_padding = {1}}}},
      {"conv_transpose2d", {{{1, 17, 4, 3}, {17, 1, 7, 5}, {1}}, {.stride = {3, 2}, .padding = {4, 3}}}},
      {"conv_transpose2d", {{{0, 24, 5, 4}, {24, 2, 4, 4}}, {.stride = {2}, .padding = {1}}}},
      {"conv_transpose3d", {{{2, 18, 2, 3, 2}, {18, 2, 2, 3, 4}, {2}}, {.stride = {1, 2, 2}, .padding = {0, 1, 1}}}}};
  for (const auto& [op, call] : calls) {
    SCOPED_TRACE(concat(op, ' ', call.shapes[0], ' ', call.shapes[1]));
    const Graph plain = graph_of(op, call), lowered = with_lowering(plain, "results in blocks");
    for (const char* part : {"space_to_depth", op, "depth_to_space"}) EXPECT_EQ(count(lowered, part), 1u) << graph::to_text(lowered);
    expect_equal(plain, lowered);
  }
  const Call others[] = {{{{2, 24, 5, 4}, {24, 8, 4, 4}}, {.stride = {2}}},  // a vector of results
                         {{{2, 16, 5, 4}, {16, 3, 4, 4}}, {.stride = {2}}},  // few inputs
                         {{{2, 24, 5, 4}, {24, 3, 4, 4}}},
                         {{{2, 24, 5, 4}, {24, 3, 4, 4}}, {.stride = {2}, .dilation = {2}}},
                         {{{2, 24, 5, 4}, {24, 3, 4, 4}}, {.stride = {2}, .output_padding = {1}}},  // what lies beyond all blocks
                         {{{2, 24, 5, 4}, {24, 3, 9, 9}}, {.stride = {9}}},
                         {{{2, 24, 5, 4}, {24, 1, 4, 4}}, {.stride = {2}, .groups = 2}}};
  for (const Call& call : others) {
    const Graph plain = graph_of("conv_transpose2d", call);
    EXPECT_EQ(graph::to_text(with_lowering(plain, "results in blocks")), graph::to_text(plain)) << call.shapes[1];
  }
}

const std::vector<std::pair<const char*, Call>> lowerable = {{"conv2d", {{{2, 3, 5, 7}, {4, 3, 3, 2}, {4}}}},
                                                             {"conv2d", {{{2, 1, 7, 6}, {5, 1, 3, 3}, {5}}, {.padding = {2, 1}}}},
                                                             {"conv2d", {{{1, 5, 4, 3}, {3, 5, 2, 1}}, {.padding = {1, 0}}}},
                                                             {"conv3d", {{{2, 3, 5, 4, 4}, {4, 3, 3, 3, 3}, {4}}}},
                                                             {"conv3d", {{{1, 2, 3, 4, 5}, {3, 2, 3, 2, 1}, {3}}, {.padding = {1, 1, 0}}}},
                                                             {"conv3d", {{{2, 1, 2, 3, 4}, {2, 1, 1, 3, 2}}}},
                                                             {"conv3d", {{{0, 3, 3, 3, 3}, {2, 3, 3, 3, 3}, {2}}}}};

TEST(ConvolutionLowerings, TapsAsChannelsChangeNothing) {
  for (const auto& [op, call] : lowerable) {
    const Graph plain = graph_of(op, call);
    for (const char* lowering : {"first taps as channels", "all taps as channels"}) {
      SCOPED_TRACE(concat(op, ' ', call.shapes[0], ' ', call.shapes[1], ' ', lowering));
      const bool first_alone = lowering == std::string("first taps as channels");
      const Graph lowered = with_lowering(plain, lowering);
      const std::size_t times = first_alone && call.shapes[1][2] == 1 ? 0 : 1;
      for (const char* part : {"im2col", "im2col_weight"}) EXPECT_EQ(count(lowered, part), times) << graph::to_text(lowered);
      expect_equal(plain, lowered);
    }
  }
}

TEST(ConvolutionLowerings, FirstTapsLeaveTheOtherAxesTheirSettings) {
  const Call call{{{2, 3, 5, 6, 7}, {4, 3, 3, 2, 3}, {4}}, {.stride = {1, 2, 1}, .padding = {1, 1, 0}, .dilation = {1, 1, 2}}};
  const Graph plain = graph_of("conv3d", call), lowered = with_lowering(plain, "first taps as channels");
  EXPECT_EQ(count(lowered, "im2col"), 1u);
  expect_equal(plain, lowered);
  EXPECT_EQ(graph::to_text(with_lowering(plain, "all taps as channels")), graph::to_text(plain));
}

TEST(ConvolutionLowerings, ChannelsOfHalvesFillVectors) {
  Graph graph;
  graph.output("y", conv3d(graph.input("x", {1, 3, 4, 5, 5}, DType::f16), graph.input("w", {2, 3, 3, 3, 3}, DType::f16)));
  const std::string first = graph::to_text(with_lowering(graph, "first taps as channels")),
                    all = graph::to_text(with_lowering(graph, "all taps as channels"));
  EXPECT_NE(first.find("f16 1x16x2x5x5"), std::string::npos) << first;
  EXPECT_NE(first.find("f16 2x16x1x3x3"), std::string::npos) << first;
  EXPECT_NE(all.find("f16 1x112x2x3x3"), std::string::npos) << all;
  EXPECT_NE(all.find("f16 2x112x1x1x1"), std::string::npos) << all;
}

TEST(ConvolutionLowerings, AWeightGradientMayLowerItsImageAlone) {
  for (const auto& [op, call] : lowerable) {
    const std::string gradient = concat(op, "_weight_gradient");
    const Shape output = graph_of(op, call).output_value("result").shape();
    const int rank = output.rank() - 2;
    ops::WeightGradientOptions options{ops::canonical(call.options, rank), ops::image_of(call.shapes[1])};
    options.convolution.output_padding = {};
    Graph plain;
    const Value dy = plain.input("0", output, DType::f64), x = plain.input("1", call.shapes[0], DType::f64);
    plain.output("result", ops::emit_one(gradient, {dy, x}, options));
    for (const char* lowering : {"first taps as channels", "all taps as channels"}) {
      SCOPED_TRACE(concat(op, ' ', call.shapes[0], ' ', call.shapes[1], ' ', lowering));
      expect_equal(plain, with_lowering(plain, lowering));
    }
    const Graph lowered = with_lowering(plain, "all taps as channels");
    EXPECT_EQ(count(lowered, "im2col"), 1u);
    EXPECT_EQ(count(lowered, "im2col_weight_backward"), 1u);
  }
}

TEST(ConvolutionLowerings, CastNoParameterByItself) {
  const std::pair<const char*, const char*> lowerings[] = {{"conv3d", "channels padded to 4"},
                                                           {"conv3d", "first taps as channels"},
                                                           {"conv3d", "all taps as channels"},
                                                           {"conv_transpose3d", "sub-pixel"}};
  for (const auto& [op, lowering] : lowerings) {
    const bool transposed = op == std::string("conv_transpose3d");
    Graph graph;
    const Value x = graph.input("x", {2, 3, 4, 5, 5});
    const Value w = graph.variable("w", {DType::f32, transposed ? Shape{3, 4, 3, 3, 3} : Shape{4, 3, 3, 3, 3}}, {}, true);
    const Value b = graph.variable("b", {DType::f32, {4}}, {}, true);
    graph.output("loss", mean(ops::emit_one(op, {x, w, b}, transposed ? Options{.stride = {2}} : Options{})));
    Graph lowered = graph::apply(graph::forward_pipeline(), graph::lower_precision(graph, DType::f16));
    lowered = with_lowering(lowered, lowering);
    Values parameters;
    for (const graph::Node* node : lowered.all(NodeKind::variable)) parameters.push_back(lowered.value(node->outputs[0]));
    const Values gradients = gradient(cast(lowered.output_value("loss"), DType::f32), parameters);
    for (std::size_t i = 0; i < gradients.size(); ++i) lowered.output(concat("gradient ", i), gradients[i]);
    const Graph whole = graph::apply(graph::cleanup_pipeline(), std::move(lowered));
    for (const graph::Node* node : whole.all(NodeKind::operation)) {
      const int rank = whole.type(node->outputs[0]).shape.rank();
      EXPECT_FALSE(node->op->conversion && (rank > 1 || transposed)) << lowering << '\n' << graph::to_text(whole);
    }
  }
}

TEST(ConvolutionLowerings, StayAwayWhereTheyDoNotApply) {
  const std::pair<const char*, Call> calls[] = {{"conv2d", {{{1, 4, 5, 5}, {2, 4, 1, 1}}}},  // four channels already, and one tap
                                                {"conv2d", {{{1, 3, 5, 5}, {4, 3, 1, 1}}}},  // as fast with three
                                                {"conv2d", {{{1, 4, 7, 7}, {2, 4, 3, 3}}, {.stride = {2}}}},
                                                {"conv2d", {{{1, 4, 7, 7}, {2, 4, 3, 3}}, {.dilation = {2}}}},
                                                {"conv2d", {{{1, 4, 7, 7}, {2, 4, 2, 2}}, {.padding = {2}}}},
                                                {"conv2d", {{{1, 48, 5, 5}, {2, 48, 3, 3}}}},
                                                {"conv2d", {{{1, 6, 5, 5}, {2, 3, 3, 3}}, {.groups = 2}}},
                                                {"conv_transpose2d", {{{1, 2, 3, 3}, {2, 2, 3, 3}}, {.padding = {1}}}},  // no stride
                                                {"conv_transpose2d", {{{1, 2, 3, 3}, {2, 2, 3, 3}}, {.stride = {2}, .dilation = {2}}}},
                                                {"conv_transpose3d", {{{1, 2, 2, 2, 2}, {2, 1, 2, 2, 2}}, {.stride = {2}, .groups = 2}}}};
  for (const auto& [op, call] : calls) {
    const Graph plain = graph_of(op, call);
    for (const char* lowering :
         {"channels padded to 4", "first taps as channels", "all taps as channels", "sub-pixel", "no lowering's name", ""}) {
      EXPECT_EQ(graph::to_text(with_lowering(plain, lowering)), graph::to_text(plain)) << op << ' ' << lowering;
    }
  }
}

/// The transposed convolution and the chain after it.
Value chain(Graph& graph, const Shape& input, const Shape& weight, const Options& options, DType dtype) {
  const auto normal = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 0.5, seed, 0); };
  const Value w = graph.variable("w", {dtype, weight}, normal, true), b = graph.variable("b", {dtype, {weight[1]}}, normal, true);
  const Value bias = graph.variable("bias", {dtype, {1, 1, 1, 1}}, normal, true);
  const Value y = logsumexp(conv_transpose3d(graph.input("x", input, dtype), w, b, options), {1}, true);
  return clamp(y * sigmoid(y + 3.0) / 6.0 - bias, -1, 1);
}

TEST(ConvolutionLowerings, TheChainAfterASubpixelLoweringReadsItsBlocks) {
  Graph graph;
  graph.output("y", chain(graph, {2, 3, 2, 3, 4}, {3, 5, 3, 3, 3}, {.stride = {2}, .padding = {1}}, DType::f32));
  const Graph fused = with_lowering(graph::apply(graph::forward_pipeline(), graph), "sub-pixel");
  EXPECT_EQ(fused.all(NodeKind::operation).size(), 4u) << graph::to_text(fused);
  for (const char* part : {"im2col", "subpixel_weight", "conv3d", "logsumexp_sigmoid_scale_subtract_clamp"}) {
    EXPECT_EQ(count(fused, part), 1u) << part;
  }
}

TEST(ConvolutionLowerings, ImagesThatAreReadTwiceAreNotAbsorbed) {
  Graph graph;
  const Value w = graph.input("w", {3, 4, 3, 3, 3}), bias = graph.input("bias", {1, 1, 1, 1});
  const Value y = conv_transpose3d(graph.input("x", {2, 3, 2, 3, 4}), w, {}, {.stride = {2}});
  const Value z = logsumexp(y, {1}, true);
  graph.output("y", y);
  graph.output("z", clamp(z * sigmoid(z + 3.0) / 6.0 - bias, -1, 1));
  const Graph fused = with_lowering(graph::apply(graph::forward_pipeline(), graph), "sub-pixel");
  EXPECT_EQ(count(fused, "depth_to_space"), 1u);
  EXPECT_EQ(count(fused, "logsumexp_sigmoid_scale_subtract_clamp"), 1u);
}

TEST(ConvolutionLowerings, TrainAlike) {
  const auto losses = [](const std::string& lowering) {
    Graph graph;
    const Value y = chain(graph, {2, 3, 2, 3, 4}, {3, 5, 3, 2, 3}, {.stride = {2, 2, 3}, .padding = {1, 0, 2}}, DType::f64);
    const Shape shape = y.shape();
    graph.output("error", mean_squared_error(y, graph.input("target", shape, DType::f64)));
    graph = with_lowering(graph::apply(graph::forward_pipeline(), graph), lowering);
    TrainStep step(graph.output_value("error"), Sgd{.learning_rate = 0.5}, Device::cpu());
    const Tensor x = Tensor::empty({2, 3, 2, 3, 4}, DType::f64), target = Tensor::empty(shape, DType::f64);
    fill_normal(x, 0, 1, 1, 1);
    fill_normal(target, 0, 1, 1, 2);
    std::vector<double> result;
    for (int i = 0; i < 5; ++i) result.push_back(step({{"x", x}, {"target", target}}));
    return result;
  };
  const std::vector<double> plain = losses(""), subpixel = losses("sub-pixel");
  EXPECT_LT(plain.back(), plain.front());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(subpixel[i], plain[i], 1e-12) << "step " << i;
}

}  // namespace
}  // namespace frit::convolution_lowerings_test
