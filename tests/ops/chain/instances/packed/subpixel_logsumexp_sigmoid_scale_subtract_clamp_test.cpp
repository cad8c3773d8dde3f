#include "frit/ops/chain/instances/packed/subpixel_logsumexp_sigmoid_scale_subtract_clamp.h"

#include "frit/core/numerics.h"
#include "frit/graph/choose_lowerings.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/tensor_core_checks.h"

namespace frit::subpixel_logsumexp_sigmoid_scale_subtract_clamp_test {
namespace {

using OwnAttributes = ops::SubpixelLogsumexpAttributes;

constexpr const char* forward = "subpixel_logsumexp_sigmoid_scale_subtract_clamp";
constexpr const char* backward = "subpixel_logsumexp_sigmoid_scale_subtract_clamp_backward";

struct Call {
  Shape image;
  ops::Im2colAttributes im2col;
  Dims block, offset;

  OwnAttributes attributes() const {
    ops::BlockAttributes blocks{block, offset, im2col.output_size};
    for (int axis = 0; axis < block.rank(); ++axis) blocks.size[axis] = im2col.output_size[axis] * block[axis] - offset[axis] - 1;
    return {im2col, {-5, 5, blocks}};
  }
  std::vector<Shape> inputs() const {
    Shape weight = Shape::filled(image.rank(), 1);
    weight[0] = 16 * ops::product(block);
    weight[1] = ops::product(im2col.taps) * im2col.channels;
    return {image, weight, {1}};
  }
  Shape output() const {
    Shape shape{image[0], 1};
    for (const std::int64_t size : attributes().chain.blocks.size) shape.push_back(size);
    return shape;
  }
};

// Rows of more positions than a tile has and of fewer, and odd ones; one group of places and several; taps with more than one vector.
const Call calls[] = {{{2, 3, 3, 5, 7}, {{2, 2, 2}, {0, 0, 0}, {3, 5, 7}, 4, true}, {2, 2, 2}, {1, 1, 1}},
                      {{3, 3, 4, 19, 37}, {{2, 2, 2}, {0, 0, 0}, {4, 19, 37}, 4, true}, {2, 2, 2}, {0, 1, 0}},
                      {{2, 4, 3, 9, 70}, {{2, 2, 2}, {1, 1, 1}, {4, 10, 71}, 4, false}, {2, 2, 2}, {1, 0, 1}},
                      {{2, 7, 33, 18}, {{2, 2}, {0, 0}, {33, 18}, 8, true}, {2, 2}, {1, 1}},
                      {{1, 2, 5, 6, 33}, {{1, 3, 2}, {0, 1, 0}, {5, 7, 32}, 4, true}, {4, 2, 2}, {1, 0, 1}},
                      {{1, 11, 40, 40}, {{1, 1}, {0, 0}, {40, 40}, 12, true}, {2, 2}, {0, 0}}};

TEST(SubpixelLogsumexp, TakesTheWholeOfATransposedConvolutionAndWhatFollows) {
  const auto fused = [](bool tf32, std::int64_t channels) {
    const Numerics before = numerics();
    Numerics changed = before;
    changed.tf32 = tf32;
    set_numerics(changed);
    Graph graph;
    const Value x = graph.input("x", {2, 3, 4, 5, 6});
    const Value weight = graph.input("weight", {3, channels, 3, 3, 3}), bias = graph.input("bias", {channels});
    const Value z = conv_transpose3d(x, weight, bias, {.stride = {2}, .padding = {1}});
    const Value y = logsumexp(z, {1}, true);
    graph.output("y", clamp(y * sigmoid(y + 3.0) / 6.0 - graph.input("subtracted", {1, 1, 1, 1}), -1, 1));
    const Graph lowered =
        graph::apply_lowerings(graph::apply(graph::forward_pipeline(), graph), [](const graph::Node&) { return "sub-pixel"; });
    set_numerics(before);
    std::vector<std::string> names;
    for (const graph::Node* node : lowered.all(graph::NodeKind::operation)) names.push_back(node->op->name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(fused(true, 16), (Names{"subpixel_weight", forward}));
  // Not where there are no kernels for it.
  const Names unfused = {"subpixel_weight", "im2col", "conv3d", "logsumexp_sigmoid_scale_subtract_clamp"};
  EXPECT_EQ(fused(false, 16), unfused);
  EXPECT_EQ(fused(true, 12), unfused);
}

TEST(SubpixelLogsumexp, RefusesWhatDoesNotFit) {
  const auto infer = [](std::vector<TensorType> types, OwnAttributes attributes) {
    return ops::registry().find(forward).infer_types(types, attributes);
  };
  const OwnAttributes attributes = calls[0].attributes();
  const std::vector<Shape> shapes = calls[0].inputs();
  const TensorType image{DType::f32, shapes[0]}, weight{DType::f32, shapes[1]}, bias{DType::f32, shapes[2]};
  EXPECT_EQ(infer({image, weight, bias}, attributes), (std::vector<TensorType>{{DType::f32, calls[0].output()}}));
  EXPECT_EQ(infer({image, {DType::f16, weight.shape}, bias}, attributes)[0].dtype, DType::f16);
  const auto refusal = [&](const std::vector<TensorType>& types, const OwnAttributes& given) {
    return message_of([&] { infer(types, given); });
  };
  EXPECT_EQ(refusal({{DType::f16, image.shape}, weight, bias}, attributes), concat(forward, ": image must be f32, got f16"));
  EXPECT_EQ(refusal({{DType::f32, {2, 3, 7}}, weight, bias}, attributes), concat(forward, ": expected an image of rank 4 or 5, got 2x3x7"));
  OwnAttributes whole = attributes;
  whole.chain.blocks = {};
  EXPECT_EQ(refusal({image, weight, bias}, whole), concat(forward, ": expected a block, got none"));
}

class CudaSubpixelLogsumexp : public OnTensorCores {
 protected:
  /// `deviation` is the weight's.
  static std::vector<Tensor> inputs_of(const Call& call, DType image, DType dtype, double deviation) {
    const std::vector<Shape> shapes = call.inputs();
    return {normal_tensor(shapes[0], DType::f32, 1).to(image), normal_tensor(shapes[1], DType::f32, 2, 0, deviation).to(dtype),
            Tensor::full({1}, 0.125, dtype)};
  }
};

TEST_F(CudaSubpixelLogsumexp, AgreesWithTheDefinition) {
  for (const Call& call : calls) {
    const auto expect_taps = [](const std::map<DType, std::string>& schedules) {
      for (const auto& [dtype, schedule] : schedules) EXPECT_EQ(schedule, "taps on tensor cores") << dtype;
    };
    std::vector<Shape> shapes = call.inputs();
    expect_taps(expect_accurate(forward, shapes, call.attributes()));
    shapes.insert(shapes.begin(), call.output());
    expect_taps(expect_accurate(backward, shapes, call.attributes()));
  }
}

TEST_F(CudaSubpixelLogsumexp, ReadsFloat32WithHalvesInEitherLayout) {
  const ops::Operator& op = ops::registry().find(forward);
  const Call& call = calls[1];
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::vector<Tensor> inputs = inputs_of(call, DType::f32, dtype, 1);
    std::vector<Tensor> rounded = inputs, contiguous;
    rounded[0] = rounded[0].to(dtype);
    const Tensor expected = run_on_gpu(op, rounded, call.attributes())[0];
    EXPECT_TRUE(same_bits(run_on_gpu(op, inputs, call.attributes())[0], expected));
    for (const Tensor& input : inputs) contiguous.push_back(input.to(gpu));
    EXPECT_TRUE(same_bits(ops::run(op, contiguous, call.attributes())[0].to(Device::cpu()), expected));
  }
}

// Exponentials that float does not hold take another way.
TEST_F(CudaSubpixelLogsumexp, AgreesWithTheDefinitionAtAnyMagnitude) {
  for (const double deviation : {40.0, 4000.0}) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      const Call& call = calls[0];
      OwnAttributes attributes = call.attributes();
      attributes.chain.min = attributes.chain.max = std::nullopt;
      std::vector<Tensor> inputs = inputs_of(call, dtype, dtype, deviation / (dtype == DType::f16 ? 100 : 1));
      const Tensor expected = ops::run(forward, exactly(inputs), attributes)[0],
                   found = run_on_gpu(ops::registry().find(forward), inputs, attributes)[0];
      EXPECT_TRUE(near(found.to(DType::f64), expected, 1e-3, largest_finite(expected))) << dtype << ' ' << deviation;
    }
  }
}

TEST_F(CudaSubpixelLogsumexp, NanAndInfiniteValuesGoWhereTheCpuHasThem) {
  const Call& call = calls[1];
  for (const DType dtype : {DType::f32, DType::f16}) {
    std::vector<Tensor> inputs = {normal_tensor(call.image, DType::f32, 1), normal_tensor(call.inputs()[1], DType::f32, 2),
                                  Tensor::full({1}, 0.125, DType::f32)};
    const std::span<float> image = inputs[0].span<float>();
    image[0] = image[2000] = NAN;
    image[4444] = std::numeric_limits<float>::infinity();
    for (Tensor& input : inputs) input = input.to(dtype);
    std::vector<Tensor> with_gradient = inputs;
    with_gradient.insert(with_gradient.begin(), normal_tensor(call.output(), DType::f32, 3).to(dtype));
    for (const char* const name : {forward, backward}) {
      const std::vector<Tensor>& given = name == forward ? inputs : with_gradient;
      const std::vector<double> expected = ops::run(name, exactly(given), call.attributes())[0].to_vector<double>(),
                                found = run_on_gpu(ops::registry().find(name), given, call.attributes())[0].to_vector<double>();
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << name << dtype << i;
    }
  }
}

}  // namespace
}  // namespace frit::subpixel_logsumexp_sigmoid_scale_subtract_clamp_test
