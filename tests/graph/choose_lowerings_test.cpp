#include "frit/graph/choose_lowerings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "frit/autograd/gradient.h"
#include "frit/autograd/train_step.h"
#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

/// A convolution, and a transposed one with a chain after it.
Value model(Graph& graph, const Shape& input) {
  const auto normal = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 0.3, seed, 0); };
  const auto parameter = [&](const char* name, const Shape& shape) { return graph.variable(name, {DType::f32, shape}, normal, true); };
  const Value x = graph.input("x", input);
  const Value y = conv3d(x, parameter("w", {3, 3, 3, 3, 3}), parameter("b", {3}), {.padding = {1}});
  const Value z = conv_transpose3d(y, parameter("wt", {3, 16, 3, 3, 3}), parameter("bt", {16}), {.stride = {2}, .padding = {1}});
  const Value l = logsumexp(z, {1}, true);
  return clamp(l * sigmoid(l + 3.0) / 6.0 - parameter("bias", {1, 1, 1, 1}), -1, 1);
}

/// The loss and the gradients of all parameters, with the operations' lowerings of one name, and another for what computes gradients.
std::vector<double> trained(Device device, const std::string& lowering, const std::string& gradient_lowering = "") {
  const Shape shape{4, 3, 8, 20, 24};
  Graph graph;
  const Value y = model(graph, shape);
  const Shape y_shape = y.shape();
  graph.output("loss", mean_squared_error(y, graph.input("target", y_shape)));
  graph = graph::apply_lowerings(graph::apply(graph::forward_pipeline(), graph), [&](const graph::Node&) { return lowering; });
  Values parameters;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) parameters.push_back(graph.value(node->outputs[0]));
  const Values gradients = gradient(graph.output_value("loss"), parameters);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  const auto lowering_of = [&](const graph::Node& node) { return node.op->is_gradient ? gradient_lowering : ""; };
  graph = graph::apply_lowerings(graph, lowering_of, {});

  const Tensor x = Tensor::empty(shape), target = Tensor::empty(y_shape);
  fill_normal(x, 0, 1, 1, 1);
  fill_normal(target, 0, 1, 1, 2);
  State state(device);
  graph::Executable executable(graph::apply(graph::cleanup_pipeline(), std::move(graph)), state);
  executable.run({{"x", x}, {"target", target}});
  std::vector<double> result = {executable.output("loss").item()};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::vector<double> values = executable.output(concat("gradient ", i)).to(Device::cpu()).to_vector<double>();
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance * largest) << "value " << i;
}

TEST(ChooseLowerings, LeavesTheCpuAlone) {
  Graph graph;
  graph.output("y", model(graph, {2, 3, 16, 32, 32}));
  const Graph chosen = graph::choose_lowerings(graph, {Device::cpu(), false, [](Graph whole) { return whole; }});
  EXPECT_EQ(graph::to_text(chosen), graph::to_text(graph));
}

class LikelyLowerings : public testing::Test {
 protected:
  ~LikelyLowerings() override { set_numerics({}); }
  static std::string text_of(const Shape& input) {
    Graph graph;
    graph.output("y", model(graph, input));
    return graph::to_text(graph::apply_likely_lowerings(graph));
  }
};

TEST_F(LikelyLowerings, FillTensorCores) {
  const std::string text = text_of({2, 3, 16, 32, 32});
  EXPECT_NE(text.find("im2col"), std::string::npos) << text;
  EXPECT_NE(text.find(": f32 2x4x16x32x32"), std::string::npos) << text;  // the padded input
}

TEST_F(LikelyLowerings, FillTensorCoresWithHalvesOfFloats) {
  const auto text_with = [](const Shape& image, const Shape& weight) {
    Graph graph;
    const Value x = graph.input("x", image), w = graph.input("w", weight, DType::f16);
    graph.output("y", image.rank() == 5 ? conv3d(x, w) : conv2d(x, w));
    return graph::to_text(graph::apply_likely_lowerings(graph));
  };
  const std::string deep = text_with({2, 1, 16, 32, 32}, {32, 1, 3, 3, 3}), flat = text_with({2, 3, 64, 64}, {32, 3, 7, 7});
  EXPECT_NE(deep.find(": f16 2x8x16x32x32"), std::string::npos) << deep;
  EXPECT_NE(flat.find(": f16 2x8x64x64"), std::string::npos) << flat;
}

TEST_F(LikelyLowerings, LetWhatFollowsBeFused) {
  Graph graph;
  const Value z = conv3d(graph.input("x", {8, 3, 16, 32, 32}), graph.input("weight", {16, 3, 3, 3, 3}));
  const Value multiplier = graph.input("multiplier", {16, 1, 1, 1});
  graph.output("y", max(clamp(instance_norm(z * multiplier), -1, 1) * multiplier, Dims{1}));
  graph.output("other", exp(graph.input("large", {1 << 28})));  // what else is moved does not matter
  const std::string text = graph::to_text(graph::apply_likely_lowerings(graph::apply(graph::forward_pipeline(), graph)));
  EXPECT_NE(text.find(" = convolution_scale_instance_norm_clamp_scale_max("), std::string::npos) << text;
  EXPECT_EQ(text.find("conv3d"), std::string::npos) << text;
}

std::string convolved_in_2d(const Shape& input, const Shape& weight, DType dtype, const ConvolutionOptions& options = {}) {
  Graph graph;
  graph.output("y", conv2d(graph.input("x", input, dtype), graph.input("w", weight, dtype), {}, options));
  return graph::to_text(graph::apply_likely_lowerings(graph));
}

TEST_F(LikelyLowerings, ReadFewChannelsOnce) {
  for (const auto& [channels, dtype] :
       {std::pair<std::int64_t, DType>{8, DType::f32}, {16, DType::f32}, {8, DType::f16}, {32, DType::bf16}}) {
    const std::string text = convolved_in_2d({16, channels, 128, 128}, {64, channels, 3, 3}, dtype);
    EXPECT_EQ(text.find("im2col"), std::string::npos) << text;
    EXPECT_EQ(text.find("pad("), std::string::npos) << text;
  }
  const std::string five = convolved_in_2d({16, 5, 128, 128}, {64, 5, 3, 3}, DType::f32);
  EXPECT_NE(five.find("f32 16x8x128x128"), std::string::npos) << five;  // the padded input
  const std::string narrow = convolved_in_2d({16, 8, 128, 48}, {64, 8, 3, 3}, DType::f32),
                    many = convolved_in_2d({16, 8, 128, 128}, {128, 8, 3, 3}, DType::f32),
                    other = convolved_in_2d({16, 8, 128, 128}, {64, 8, 3, 2}, DType::f32);
  for (const std::string& text : {narrow, many, other}) EXPECT_NE(text.find("im2col"), std::string::npos) << text;
}

/// The ends of generators and of what tells their images from others.
TEST_F(LikelyLowerings, MultiplyWholeImagesAndMakeFewResultsInBlocks) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const std::string whole = convolved_in_2d({128, 512, 4, 4}, {1, 512, 4, 4}, dtype);
    EXPECT_NE(whole.find(" = linear("), std::string::npos) << whole;
    const auto transposed = [&](const Shape& input, const Shape& weight, const ConvolutionOptions& options) {
      Graph graph;
      graph.output("y", conv_transpose2d(graph.input("x", input, dtype), graph.input("w", weight, dtype), {}, options));
      return graph::to_text(graph::apply_likely_lowerings(graph));
    };
    const std::string first = transposed({128, 100, 1, 1}, {100, 512, 4, 4}, {}),
                      last = transposed({128, 64, 32, 32}, {64, 3, 4, 4}, {.stride = {2}, .padding = {1}});
    EXPECT_NE(first.find(" = matmul("), std::string::npos) << first;
    EXPECT_NE(last.find(" = depth_to_space("), std::string::npos) << last;
  }
}

TEST_F(LikelyLowerings, TakeNoneThatDoesNotApply) {
  const std::string text = convolved_in_2d({16, 5, 128, 128}, {64, 5, 3, 3}, DType::f32, {.stride = {2}});
  EXPECT_EQ(text.find("im2col"), std::string::npos) << text;
  EXPECT_NE(text.find("f32 16x8x128x128"), std::string::npos) << text;
}

TEST_F(LikelyLowerings, FuseAChainWithItsConvolutionFirst) {
  Graph graph;
  const Value y = conv2d(graph.input("x", {16, 8, 128, 128}), graph.input("w", {64, 8, 3, 3}), graph.input("b", {64}));
  const Value n = group_norm(y, 16, graph.input("nw", {64}), graph.input("nb", {64}));
  graph.output("y", clamp(max_pool2d(n * graph.input("scale", {64, 1, 1}), {.kernel_size = {4}}), 0, 1));
  const std::string text = graph::to_text(graph::apply_likely_lowerings(graph::apply(graph::forward_pipeline(), graph)));
  EXPECT_NE(text.find("packed_group_norm_scale_max_pool_clamp("), std::string::npos) << text;
  EXPECT_EQ(text.find("conv2d"), std::string::npos) << text;
}

/// Only tensor cores want channels in vectors, but library kernels for transposed convolutions are slow without them, too.
TEST_F(LikelyLowerings, PadNoChannelsWithoutTensorCores) {
  set_numerics({.tf32 = false});
  const std::string text = text_of({2, 3, 16, 32, 32});
  EXPECT_NE(text.find("im2col"), std::string::npos) << text;
  EXPECT_EQ(text.find("pad("), std::string::npos) << text;
}

/// The rules of fused operators look at sizes and dtypes: what they say of a small sample in float32 is not what they say of a graph.
TEST_F(LikelyLowerings, FindFusedOperatorsOfHalvesNextToStrictFloats) {
  set_numerics({.tf32 = false});
  Graph graph;
  graph.output("y", model(graph, {8, 3, 16, 32, 32}));
  const auto in_blocks = [](const graph::Node&) { return "sub-pixel"; };
  graph = graph::lower_precision(graph::apply(graph::forward_pipeline(), graph), DType::f16);
  const std::string text = graph::to_text(graph::apply_lowerings(graph, in_blocks));
  EXPECT_NE(text.find("subpixel_logsumexp_sigmoid_scale_subtract_clamp("), std::string::npos) << text;
}

TEST_F(LikelyLowerings, LeaveSmallCallsAlone) {
  const std::string text = text_of({1, 3, 2, 3, 4});
  EXPECT_EQ(text.find("im2col"), std::string::npos) << text;
  EXPECT_EQ(text.find("pad("), std::string::npos) << text;
}

class CudaChooseLowerings : public testing::Test {
 protected:
  static constexpr Device gpu{DeviceKind::cuda, 0};

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    set_numerics({.tf32 = false});
  }
  void TearDown() override { set_numerics({}); }
};

TEST(ChooseLowerings, GradientsHaveLoweringsOfTheirOwn) {
  const std::vector<double> expected = trained(Device::cpu(), "");
  for (const char* const lowering : {"", "channels padded to 4"}) {
    for (const char* const gradient_lowering : {"first taps as channels", "all taps as channels"}) {
      SCOPED_TRACE(concat(lowering, ", ", gradient_lowering));
      expect_near(trained(Device::cpu(), lowering, gradient_lowering), expected, 2e-5);
    }
  }
}

/// The gradient of a weight of 8 groups, 3 channels to 2, with an infinite number in the first group's image.
std::vector<double> gradient_of_groups(const std::string& lowering, std::size_t* operations) {
  Graph graph;
  const auto normal = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 1, seed, 0); };
  const Value w = graph.variable("w", {DType::f32, {16, 3, 3, 2}}, normal, true);
  const Value y = conv2d(graph.input("x", {2, 24, 9, 8}), w, {}, {.stride = {2}, .padding = {1}, .groups = 8});
  const Values gradients = gradient(sum(y * graph.input("g", y.shape())), {&w, 1});
  graph.output("gradient", gradients[0]);
  graph = graph::apply_lowerings(graph, [&](const graph::Node& node) { return node.op->is_gradient ? lowering : ""; }, {});
  *operations = graph.all(graph::NodeKind::operation).size();
  const Tensor x = Tensor::empty({2, 24, 9, 8}), g = Tensor::empty(graph.type(graph.all(graph::NodeKind::input)[1]->outputs[0]).shape);
  fill_normal(x, 0, 1, 1, 1);
  fill_normal(g, 0, 1, 1, 2);
  x.data<float>()[10] = std::numeric_limits<float>::infinity();
  State state{Device::cpu()};
  graph::Executable executable(graph::apply(graph::cleanup_pipeline(), std::move(graph)), state);
  executable.run({{"x", x}, {"g", g}});
  return executable.output("gradient").to_vector<double>();
}

/// In strict float32: tensor cores have kernels for groups.
class GradientsOfGroups : public testing::Test {
 protected:
  void SetUp() override { set_numerics({.tf32 = false}); }
  void TearDown() override { set_numerics({}); }
};

TEST_F(GradientsOfGroups, AreTheDiagonalOfADenseOne) {
  std::size_t plain = 0, lowered = 0;
  const std::vector<double> expected = gradient_of_groups("", &plain), found = gradient_of_groups("diagonal of a dense gradient", &lowered);
  EXPECT_GT(lowered, plain);
  const std::size_t of_group = expected.size() / 8;
  const auto is_finite = [](double value) { return std::isfinite(value); };
  EXPECT_FALSE(std::all_of(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(of_group), is_finite));
  expect_near({found.begin() + static_cast<std::ptrdiff_t>(of_group), found.end()},
              {expected.begin() + static_cast<std::ptrdiff_t>(of_group), expected.end()}, 2e-5);
}

TEST_F(GradientsOfGroups, AreDenseWithFewChannelsInManyGroups) {
  const auto applies = [](int rank, std::int64_t groups, std::int64_t channels, std::int64_t results) {
    Graph graph;
    Shape x = Shape::filled(rank + 2, 7), y = x;
    x[1] = groups * channels;
    y[1] = groups * results;
    const Value inputs[] = {graph.input("gradient", y), graph.input("x", x)};
    const ops::Operator& op = ops::registry().find(concat("conv", rank, "d_weight_gradient"));
    const auto named = [](const ops::Lowering& lowering) { return std::string_view(lowering.name) == "diagonal of a dense gradient"; };
    const auto lowering = std::find_if(op.lowerings.begin(), op.lowerings.end(), named);
    const ops::WeightGradientOptions options{{.padding = {1}, .groups = groups}, {3}};
    const Values found = lowering->rule(graph, inputs, options);
    if (!found.empty()) {
      Shape weight = Shape::filled(rank + 2, 3);
      weight[0] = groups * results;
      weight[1] = channels;
      EXPECT_EQ(found[0].shape(), weight);
    }
    return !found.empty();
  };
  EXPECT_TRUE(applies(2, 32, 4, 4));
  EXPECT_TRUE(applies(2, 8, 2, 5));
  EXPECT_TRUE(applies(3, 8, 3, 1));
  EXPECT_FALSE(applies(2, 8, 1, 1)) << "depthwise ones have kernels of their own";
  EXPECT_FALSE(applies(2, 8, 5, 4));
  EXPECT_FALSE(applies(2, 7, 4, 4)) << "a library's groups are wide enough";
  EXPECT_FALSE(applies(2, 64, 4, 5)) << "more than a dense gradient is worth";
  set_numerics({.tf32 = true});
  EXPECT_FALSE(applies(2, 32, 4, 4)) << "with kernels for groups";
  EXPECT_TRUE(applies(2, 9, 3, 3)) << "whose channels fill no vectors";
}

TEST(ChooseLowerings, PixelsAreMergedWhereTheirChannelsAreNoVectors) {
  const auto gradient_of = [](const Shape& shape, std::int64_t results, const std::string& lowering, std::size_t* operations) {
    Graph graph;
    Shape weight = Shape::filled(shape.rank(), 1), gradients = shape;
    weight[0] = gradients[1] = results, weight[1] = shape[1];
    const Value x = graph.input("x", shape), g = graph.input("g", gradients);
    graph.output("gradient", ops::weight_gradient(g, x, {}, Dims::filled(shape.rank() - 2, 1)));
    graph = graph::apply_lowerings(graph, [&](const graph::Node& node) { return node.op->is_gradient ? lowering : ""; }, {});
    *operations = graph.all(graph::NodeKind::operation).size();
    std::map<std::string, Tensor> inputs = {{"x", Tensor::empty(shape)}, {"g", Tensor::empty(gradients)}};
    for (const auto& [name, tensor] : inputs) fill_normal(tensor, 0, 1, 1, stream_of(name));
    State state{Device::cpu()};
    graph::Executable executable(graph::apply(graph::cleanup_pipeline(), std::move(graph)), state);
    executable.run({inputs.begin(), inputs.end()});
    EXPECT_EQ(executable.output("gradient").shape(), weight);
    return executable.output("gradient").to_vector<double>();
  };
  const auto is_merged = [&](const Shape& shape, std::int64_t results) {
    std::size_t plain = 0, lowered = 0;
    const std::vector<double> expected = gradient_of(shape, results, "", &plain);
    expect_near(gradient_of(shape, results, "pixels merged", &lowered), expected, 2e-5);
    return lowered > plain;
  };
  EXPECT_TRUE(is_merged({3, 10, 4, 6}, 12)) << "four pixels";
  EXPECT_TRUE(is_merged({2, 9, 2, 3, 4}, 16)) << "eight of a volume";
  EXPECT_FALSE(is_merged({3, 16, 4, 6}, 8)) << "they are vectors";
  EXPECT_FALSE(is_merged({3, 10, 3, 5}, 12)) << "an odd number of pixels";
  EXPECT_FALSE(is_merged({3, 10, 4, 6}, 140)) << "more products than the vectors are worth";
}

TEST_F(CudaChooseLowerings, EveryLoweringTrainsLikeTheCpu) {
  const std::vector<double> expected = trained(Device::cpu(), "");
  for (const char* const lowering :
       {"", "sub-pixel", "channels padded to 4", "channels padded to 8", "first taps as channels", "all taps as channels"}) {
    for (const char* const gradient_lowering : {"", "first taps as channels", "all taps as channels"}) {
      SCOPED_TRACE(concat(lowering, ", ", gradient_lowering));
      expect_near(trained(gpu, lowering, gradient_lowering), expected, 2e-5);
    }
  }
}

TEST_F(CudaChooseLowerings, MeasuredAndLikelyLoweringsTrainLikeTheCpu) {
  const auto losses = [](Device device) {
    Graph graph;
    const Shape shape{4, 3, 8, 20, 24};
    const Value y = model(graph, shape);
    TrainStep step(mean_squared_error(y, graph.input("target", y.shape())), Sgd{.learning_rate = 0.1}, device);
    const Tensor x = Tensor::empty(shape), target = Tensor::empty(y.shape());
    fill_normal(x, 0, 1, 1, 1);
    fill_normal(target, 0, 1, 1, 2);
    std::vector<double> result;
    for (int i = 0; i < 4; ++i) result.push_back(step({{"x", x}, {"target", target}}));
    return result;
  };
  const std::vector<double> expected = losses(Device::cpu());
  for (const bool tf32 : {false, true}) {
    for (const Numerics settings : {Numerics{.deterministic = true}, {.search = Search::heuristic}, {.search = Search::exhaustive}}) {
      const bool deterministic = settings.deterministic;
      set_numerics({.tf32 = tf32, .deterministic = deterministic, .search = settings.search});
      const std::vector<double> found = losses(gpu);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], (tf32 ? 2e-3 : 2e-5) * expected[i]) << tf32 << deterministic << ", step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace frit
