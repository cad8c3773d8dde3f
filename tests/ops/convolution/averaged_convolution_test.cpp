// Averages of convolutions from averages of their inputs and weights.

#include <cmath>
#include <limits>

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/convolution/convolution_graphs.h"

namespace frit::averaged_convolution_test {
namespace {

using convolution_graphs::expect_equal;

struct Call {
  const char* op;
  std::vector<Shape> shapes;  ///< input, weight and perhaps bias
  ConvolutionOptions options = {};
  PoolOptions pool = {};  ///< without a kernel: the mean over the image
};

Graph graph_of(const Call& call) {
  Graph graph;
  Values inputs;
  for (const Shape& shape : call.shapes) inputs.push_back(graph.input(concat(inputs.size()), shape, DType::f64));
  const Value image = ops::emit_one(call.op, {inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : Value()}, call.options);
  const bool flat = image.rank() == 4;
  const Value averages = call.pool.kernel_size.empty() ? mean(image, flat ? Dims{2, 3} : Dims{2, 3, 4})
                         : flat ? avg_pool2d(image, call.pool)
                                                       : avg_pool3d(image, call.pool);
  graph.output("result", averages);
  return graph;
}

std::string text_of(const Call& call) {
  return concat(call.op, ' ', call.shapes[0], ' ', call.shapes[1], ' ', fields_text(call.options), ' ', fields_text(call.pool));
}

TEST(AveragedConvolution, IsTheAverageOfTheConvolution) {
  const Call calls[] = {
      // the whole image
      {"conv2d", {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}}, {.padding = {1}}},
      {"conv2d", {{2, 3, 7, 6}, {4, 3, 3, 2}}, {.padding = {0, 1}, .dilation = {2, 1}}},
      {"conv2d", {{2, 3, 4, 5}, {2, 3, 1, 1}, {2}}},
      {"conv3d", {{1, 2, 4, 5, 4}, {3, 2, 3, 3, 1}, {3}}, {.padding = {1, 2, 0}}},
      {"conv_transpose2d", {{2, 3, 4, 5}, {3, 4, 3, 3}, {4}}},
      {"conv_transpose2d", {{2, 3, 4, 5}, {3, 2, 3, 3}, {2}}, {.stride = {2}, .padding = {1}, .output_padding = {1}}},
      {"conv_transpose2d", {{1, 2, 6, 5}, {2, 2, 5, 4}}, {.stride = {1, 3}, .padding = {3, 2}}},
      {"conv_transpose3d", {{1, 2, 3, 4, 3}, {2, 3, 3, 2, 3}, {3}}, {.stride = {2}, .padding = {1, 0, 2}}},
      // windows
      {"conv2d", {{2, 3, 10, 12}, {4, 3, 3, 3}, {4}}, {.padding = {1}}, {.kernel_size = {2}}},
      {"conv2d", {{2, 3, 10, 13}, {4, 3, 3, 3}, {4}}, {}, {.kernel_size = {4, 3}, .stride = {2, 3}}},
      {"conv2d", {{2, 5, 6, 7}, {3, 5, 1, 1}, {3}}, {}, {.kernel_size = {2, 3}}},
      {"conv2d", {{1, 2, 9, 8}, {3, 2, 3, 3}}, {.stride = {2, 1}, .padding = {1}}, {.kernel_size = {1, 4}}},
      {"conv3d", {{1, 2, 6, 6, 6}, {2, 2, 3, 3, 3}, {2}}, {.padding = {1}}, {.kernel_size = {2}}},
      {"conv_transpose2d", {{2, 3, 4, 5}, {3, 2, 3, 3}, {2}}, {.stride = {2}, .padding = {1}}, {.kernel_size = {2}}},
      {"conv_transpose2d", {{2, 3, 5, 6}, {3, 2, 4, 4}}, {.stride = {2}, .padding = {1}}, {.kernel_size = {4}}},
      {"conv_transpose2d", {{2, 3, 4, 5}, {3, 2, 3, 3}}, {.stride = {2}, .padding = {1}, .output_padding = {1}}, {.kernel_size = {2}}},
      {"conv_transpose2d", {{2, 2, 6, 7}, {2, 2, 2, 3}}, {.padding = {1, 0}}, {.kernel_size = {3, 2}}},
      {"conv_transpose3d", {{1, 2, 3, 4, 3}, {2, 3, 3, 3, 3}, {3}}, {.stride = {2}, .padding = {1}}, {.kernel_size = {2}}},
      // one axis whole
      {"conv2d", {{2, 3, 4, 9}, {4, 3, 3, 3}}, {.padding = {1}}, {.kernel_size = {4, 2}}}};
  for (const Call& call : calls) {
    SCOPED_TRACE(text_of(call));
    Graph plain = graph_of(call);
    const Graph early = graph::average_early(plain, 0);
    EXPECT_NE(graph::to_text(early), graph::to_text(plain));
    for (const graph::Node* node : early.all(graph::NodeKind::operation)) {
      EXPECT_NE(early.type(node->outputs[0]).shape, plain.type(plain.producer(plain.output_value("result").id()).inputs[0]).shape);
    }
    expect_equal(plain, early);
  }
}

TEST(AveragedConvolution, IsLeftWhereItTakesAsManyProducts) {
  const Call calls[] = {{"conv2d", {{2, 3, 8, 8}, {4, 3, 3, 3}}, {}, {.kernel_size = {3}, .stride = {1}}},  // windows overlap
                        {"conv2d", {{2, 3, 9, 9}, {4, 3, 3, 3}}, {.padding = {1}}, {.kernel_size = {3}, .padding = {1}}},
                        {"conv2d", {{2, 3, 9, 9}, {4, 3, 3, 3}}, {.stride = {2}}, {.kernel_size = {2}}},
                        {"conv2d", {{2, 4, 8, 8}, {4, 2, 3, 3}}, {.groups = 2}},
                        {"conv2d", {{2, 3, 20, 20}, {4, 3, 9, 9}}, {}, {.kernel_size = {4}}},  // a large kernel
                        {"conv_transpose2d", {{2, 3, 6, 6}, {3, 2, 3, 3}}, {.stride = {2}}, {.kernel_size = {3}}},
                        {"conv2d", {{0, 3, 8, 8}, {4, 3, 3, 3}}}};
  for (const Call& call : calls) {
    const Graph plain = graph_of(call);
    EXPECT_EQ(graph::to_text(graph::average_early(plain, 0)), graph::to_text(plain)) << text_of(call);
  }
}

TEST(AveragedConvolution, IsLeftWhereOthersReadTheConvolution) {
  Graph graph;
  const Value image = conv2d(graph.input("0", {1, 2, 5, 5}, DType::f64), graph.input("1", {2, 2, 3, 3}, DType::f64));
  graph.output("result", mean(image, {2, 3}));
  graph.output("image", image);
  EXPECT_EQ(graph::to_text(graph::average_early(graph, 0)), graph::to_text(graph));
}

TEST(AveragedConvolution, KeepsWhatIsNotFiniteInItsPlace) {
  // Only the first tap of each axis meets the corner: channel 0 multiplies it by 1, channel 1 by 0, channel 2 by -2.
  const Call call{"conv2d", {{1, 1, 4, 4}, {3, 1, 2, 2}}};
  for (const bool early : {false, true}) {
    const Graph plain = graph_of(call), changed = graph::average_early(plain, 0);
    EXPECT_NE(graph::to_text(changed), graph::to_text(plain));
    State state;
    graph::Executable executable(early ? changed : plain, state);
    std::vector<double> image(16, 1.0), weight = {1, 1, 1, 1, 0, 1, 1, 1, -2, 1, 1, 1};
    image[0] = std::numeric_limits<double>::infinity();
    executable.run({{"0", Tensor::from(image, call.shapes[0])}, {"1", Tensor::from(weight, call.shapes[1])}});
    const std::vector<double> found = executable.output("result").to_vector<double>();
    EXPECT_EQ(found[0], std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(found[1]));
    EXPECT_EQ(found[2], -std::numeric_limits<double>::infinity());
  }
}

TEST(AveragedConvolution, OneAfterAnotherTakesAverages) {
  Graph graph;
  const Value x = graph.input("0", {1, 2, 8, 8}, DType::f64), first = graph.input("1", {3, 2, 3, 3}, DType::f64),
              second = graph.input("2", {4, 3, 1, 1}, DType::f64);
  graph.output("result", avg_pool2d(conv2d(conv2d(x, first, {}, {.padding = {1}}), second), {.kernel_size = {2}}));
  const Graph early = graph::average_early(graph, 0);
  EXPECT_EQ(convolution_graphs::count(early, "avg_pool2d"), 0u) << graph::to_text(early);
  expect_equal(graph, early);
}

TEST(AveragedConvolution, IsLeftWhereItIsSmallOrMovesMore) {
  const Graph small = graph_of({"conv2d", {{2, 3, 5, 6}, {4, 3, 3, 3}}});
  EXPECT_EQ(graph::to_text(graph::average_early(small)), graph::to_text(small));
  const Graph narrow = graph_of({"conv2d", {{1, 64, 4, 4}, {4, 64, 1, 1}}, {}, {.kernel_size = {2}}});
  EXPECT_EQ(graph::to_text(graph::average_early(narrow, 0)), graph::to_text(narrow));
}

TEST(AveragedConvolution, AveragesTapsOfHalvesInFloat32) {
  Graph graph;
  const Value image = conv2d(graph.input("0", {1, 2, 6, 6}, DType::bf16), graph.input("1", {2, 2, 3, 3}, DType::bf16));
  graph.output("result", avg_pool2d(image, {.kernel_size = {2}}));
  Graph early = graph::average_early(graph, 0);
  for (const graph::Node* node : early.all(graph::NodeKind::operation)) {
    if (node->op->name == "mean" || node->op->name == "add") {
      EXPECT_EQ(early.type(node->outputs[0]).dtype, DType::f32);
    }
  }
  EXPECT_EQ(early.output_value("result").dtype(), DType::bf16);
}

}  // namespace
}  // namespace frit::averaged_convolution_test
