// Weight gradients on tensor cores by frit's own kernels, against the CPU's in float64. The generic suite does not come here with float32,
// since it computes without tensor cores.

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_weight_gradient.h"
#include "ops/fused/chain_checks.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

constexpr Device gpu{DeviceKind::cuda, 0};

class CudaTapProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }

  /// Of the largest value: the inputs are rounded to the dtype before, and float32 to TF32 on the way.
  static double tolerance(DType dtype) { return dtype == DType::bf16 ? 1e-2 : 1e-3; }

  /// Images lie channels-last.
  static std::vector<Tensor> run_on_gpu(const Operator& op, const std::vector<Tensor>& inputs, const ops::Attributes& attributes) {
    std::vector<Tensor> moved;
    ops::CallLayouts layouts;
    for (const Tensor& input : inputs) {
      layouts.inputs.push_back(input.rank() >= 4 && input.dim(1) > 1 ? Layout::channels_last : Layout::contiguous);
      moved.push_back(input.to(gpu).contiguous(layouts.inputs.back()));
    }
    const std::vector<TensorType> types = op.infer_types(types_of(inputs), attributes);
    std::vector<Tensor> outputs;
    for (const TensorType& type : types) {
      layouts.outputs.push_back(type.shape.rank() >= 4 ? Layout::channels_last : Layout::contiguous);
      outputs.push_back(Tensor::full(type.shape, NAN, type.dtype, gpu).contiguous(layouts.outputs.back()));
    }
    const std::size_t bytes = ops::scratch_bytes(op, types_of(inputs), types, attributes, gpu, layouts);
    const Tensor scratch = Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8, gpu);
    ops::invoke(op, attributes, moved, outputs, {static_cast<std::byte*>(scratch.raw()), bytes});
    for (Tensor& output : outputs) output = output.to(Device::cpu()).contiguous();
    return outputs;
  }

  static void expect_accurate(const char* name, const std::vector<Shape>& shapes, const ops::Attributes& attributes) {
    const Operator& op = ops::registry().find(name);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      std::vector<Tensor> inputs, exact;
      for (const Shape& shape : shapes) {
        inputs.push_back(normal_tensor(shape, DType::f32, inputs.size()).to(dtype));
        exact.push_back(inputs.back().to(DType::f64));
      }
      const std::vector<Tensor> expected = ops::run(op, exact, attributes), found = run_on_gpu(op, inputs, attributes);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(near(found[i].to(DType::f64), expected[i], tolerance(dtype), largest_finite(expected[i])))
            << name << ' ' << shapes[1] << ' ' << dtype << " result " << i;
      }
      const std::vector<Tensor> again = run_on_gpu(op, inputs, attributes);
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], again[i]));
    }
  }
};

TEST_F(CudaTapProducts, AgreeWithTheDefinition) {
  struct Call {
    Shape input;
    std::int64_t outputs;
    Dims kernel, padding;
  };
  const Call calls[] = {{{2, 8, 9, 11}, 16, {3, 3}, {0}},      {{3, 4, 5, 6, 70}, 32, {2, 3, 3}, {1}},
                        {{2, 24, 5, 130}, 64, {1, 3}, {0}},    {{300, 16, 4, 5}, 16, {2, 2}, {0}},
                        {{1, 4, 3, 3, 3}, 16, {3, 3, 3}, {0}}, {{2, 4, 7, 40, 33}, 16, {3, 3, 3}, {0}},
                        {{2, 8, 20, 20}, 128, {3, 1}, {2, 0}}, {{1, 8, 1, 200}, 64, {1, 5}, {0, 4}},
                        {{2, 12, 6, 9}, 32, {3, 3}, {1, 2}},   {{1, 64, 33, 17}, 128, {1, 2}, {0}}};
  for (const Call& call : calls) {
    const int rank = call.input.rank() - 2;
    const ops::WeightGradientOptions options{ops::canonical({.padding = call.padding}, rank), call.kernel};
    Shape gradient = call.input;
    gradient[1] = call.outputs;
    for (int axis = 0; axis < rank; ++axis) {
      gradient[axis + 2] += 2 * options.convolution.padding[axis] - call.kernel[axis] + 1;
    }
    ops::WeightGradientOptions given = options;
    given.convolution.output_padding = {};
    expect_accurate(rank == 2 ? "conv2d_weight_gradient" : "conv3d_weight_gradient", {gradient, call.input}, given);
  }
}

TEST_F(CudaTapProducts, OfConvolutionsAgreeWithTheDefinition) {
  struct Call {
    std::vector<Shape> shapes;
    Dims padding;
  };
  const Call calls[] = {{{{2, 4, 5, 6, 70}, {16, 4, 3, 3, 3}, {16}}, {1}}, {{{3, 4, 7, 40, 33}, {32, 4, 3, 3, 3}}, {0}},
                        {{{2, 8, 20, 133}, {32, 8, 3, 3}, {32}}, {0}},     {{{2, 24, 5, 130}, {64, 24, 1, 3}, {64}}, {0}},
                        {{{300, 4, 9, 9}, {32, 4, 3, 3}}, {2, 0}},         {{{1, 8, 300, 17}, {128, 8, 3, 3}}, {1}},
                        {{{2, 24, 3, 16}, {96, 24, 1, 3}, {96}}, {0, 1}}};
  for (const Call& call : calls) {
    const int rank = call.shapes[0].rank() - 2;
    expect_accurate(rank == 2 ? "conv2d" : "conv3d", call.shapes, ops::canonical({.padding = call.padding}, rank));
  }
}

TEST_F(CudaTapProducts, NanStaysWithThePixelsThatReadIt) {
  const Operator& op = ops::registry().find("conv3d");
  const ops::Attributes attributes = ops::canonical({}, 3);
  for (const DType dtype : {DType::f32, DType::f16}) {
    std::vector<Tensor> inputs = {normal_tensor({1, 4, 4, 5, 40}, DType::f32, 1), normal_tensor({16, 4, 3, 3, 3}, DType::f32, 2)};
    const std::span<float> pixels = inputs[0].span<float>();
    pixels[2 * 5 * 40 + 2 * 40 + 20] = pixels[800 + 3 * 40 + 39] = pixels[0] = NAN;
    for (Tensor& input : inputs) input = input.to(dtype);
    const std::vector<double> expected = ops::run(op, inputs, attributes)[0].to_vector<double>(),
                              found = run_on_gpu(op, inputs, attributes)[0].to_vector<double>();
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << dtype << ' ' << i;
  }
}

TEST_F(CudaTapProducts, WithAChainsGradientAgreeWithTheChain) {
  struct Call {
    Shape input;
    ops::BlockAttributes blocks;
    std::int64_t image_channels;
  };
  const Call calls[] = {{{2, 128, 2, 3, 5}, {{2, 2, 2}, {1, 1, 1}, {3, 5, 9}}, 32},
                        {{3, 128, 4, 9, 11}, {{2, 2, 2}, {0, 1, 0}, {8, 17, 21}}, 32},
                        {{1, 64, 9, 7}, {{2, 2}, {0, 1}, {17, 13}}, 16},
                        {{2, 32, 31, 33}, {{2, 1}, {1, 0}, {60, 33}}, 24}};
  for (const Call& call : calls) {
    Shape gradient = call.input, image = call.input;
    gradient[1] = 1;
    std::copy(call.blocks.size.begin(), call.blocks.size.end(), gradient.begin() + 2);
    image[1] = call.image_channels;
    ops::WeightGradientOptions product{ops::canonical({}, image.rank() - 2), Dims::filled(image.rank() - 2, 1)};
    product.convolution.output_padding = {};
    expect_accurate("logsumexp_sigmoid_scale_subtract_clamp_weight_gradient", {gradient, call.input, Shape{1}, image},
                    ops::LogsumexpWeightGradientAttributes{{-5, 5, call.blocks}, product});
  }
}

}  // namespace
}  // namespace frit
