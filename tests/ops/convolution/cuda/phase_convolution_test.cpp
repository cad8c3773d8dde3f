// Transposed convolutions phase by phase, against the definition in float64.

#include "frit/ops/convolution/tiles/phase_convolution.h"

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "ops/tensor_core_checks.h"

namespace frit::phase_convolution_test {
namespace {

using cudnn::ConvolutionKind;

struct Sizes {
  Shape input;
  std::int64_t outputs;
  Dims kernel, stride = {2}, padding = {0}, output_padding = {0};
};

/// Of random tensors, or of none.
ops::ConvolutionCall call_of(const Sizes& sizes, DType dtype, Device device, bool filled, Layout weight_layout = Layout::channels_last) {
  const int axes = sizes.input.rank() - 2;
  Shape weight = {sizes.input[1], sizes.outputs}, output = {sizes.input[0], sizes.outputs};
  for (int axis = 0; axis < axes; ++axis) weight.push_back(sizes.kernel.rank() == 1 ? sizes.kernel[0] : sizes.kernel[axis]);
  const ConvolutionOptions options{.stride = sizes.stride, .padding = sizes.padding, .output_padding = sizes.output_padding};
  const ops::ConvolutionGeometry g = ops::transposed_geometry(sizes.input, weight, ops::canonical(options, axes));
  for (const std::int64_t size : std::span(g.input).last(static_cast<std::size_t>(axes))) output.push_back(size);
  const auto tensor = [&](const Shape& shape, std::uint64_t seed, Layout layout = Layout::channels_last) {
    return filled ? normal_tensor(shape, DType::f32, seed).to(dtype).to(device).contiguous(layout)
                  : Tensor::over(nullptr, shape, dtype, device, nullptr, layout);
  };
  return {ConvolutionKind::data_gradient, g, {tensor(output, 1), tensor(weight, 2, weight_layout), tensor(sizes.input, 3), {}}};
}

/// Two and three axes, all phases and offsets, channels that fill no step or no block, tiles that fill no image.
const Sizes calls[] = {{{2, 64, 17, 21}, 64, {3}, {2}, {1}, {1}},
                       {{3, 40, 9, 40}, 44, {3}, {2}, {1}},
                       {{1, 64, 30, 7}, 128, {4}, {2}, {1}, {1}},
                       {{2, 16, 5, 8}, 20, {4}},
                       {{2, 32, 8, 9}, 16, {5}, {2}, {2}},
                       {{1, 48, 3, 70}, 8, {2}},
                       {{2, 128, 11, 6}, 40, {3}, {2}, {1}, {1}},
                       {{2, 16, 12, 13}, 24, {3, 4}, {1, 2}, {1}},
                       {{2, 32, 5, 9, 6}, 64, {3}, {2}, {1}, {1}},
                       {{1, 16, 3, 4, 13}, 12, {3}, {2}, {1}},
                       {{1, 32, 4, 6, 5}, 48, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}},
                       {{1, 32, 4, 6, 5}, 16, {3, 2, 4}, {1, 2, 2}, {1, 0, 1}}};

class CudaPhaseConvolution : public OnHopper {};

TEST_F(CudaPhaseConvolution, AgreesWithTheDefinition) {
  for (const Sizes& sizes : calls) {
    for (const Arithmetic& arithmetic : arithmetics) {
      if (!arithmetic.tf32) continue;
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(concat(sizes.input, ' ', sizes.outputs, ' ', arithmetic.dtype, biased ? " biased" : ""));
        ops::ConvolutionCall call = call_of(sizes, arithmetic.dtype, gpu, true, biased ? Layout::contiguous : Layout::channels_last);
        if (biased) call.operands.bias = normal_tensor({sizes.outputs}, DType::f32, 4).to(arithmetic.dtype).to(gpu);
        const std::optional<ops::OwnKernel> kernel = ops::phase_kernel(call);
        ASSERT_TRUE(kernel);
        const auto found = [&] {
          call.operands.input.fill(NAN);
          kernel->run({}, cuda::compute_stream(gpu.index));
          return call.operands.input.to(Device::cpu()).contiguous();
        };
        ops::ConvolutionCall exact = call;
        for (Tensor* const t : {&exact.operands.input, &exact.operands.weight, &exact.operands.output}) *t = t->to(DType::f64);
        if (biased) exact.operands.bias = call.operands.bias.to(DType::f64);
        ops::direct_convolution(exact.kind, exact.geometry, exact.operands, cuda::compute_stream(gpu.index));
        const Tensor right = exact.operands.input.to(Device::cpu()).contiguous(), result = found();
        EXPECT_TRUE(near(result.to(DType::f64), right, arithmetic.tolerance, largest_finite(right)));
        EXPECT_TRUE(same_bits(result, found()));
      }
    }
  }
}

TEST_F(CudaPhaseConvolution, IsTakenWhereItIsFaster) {
  const auto taken = [&](const Sizes& sizes, DType dtype = DType::f32, bool followed = false) {
    const auto program = ops::ElementwiseProgram::parse("y0 = relu(x0); return y0");
    ops::ConvolutionCall call = call_of(sizes, dtype, gpu, false);
    if (followed) call.program = &program;
    return ops::phase_convolution(call).has_value();
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_TRUE(taken({{128, 64, 128, 128}, 64, {3}, {2}, {1}, {1}}, dtype));
    EXPECT_TRUE(taken({{16, 64, 16, 32, 32}, 32, {3}, {2}, {1}, {1}}, dtype));
    EXPECT_FALSE(taken({{128, 64, 128, 128}, 64, {3}, {1}, {1}}, dtype)) << "no stride";
    EXPECT_FALSE(taken({{1, 64, 16, 16}, 64, {3}, {2}, {1}, {1}}, dtype)) << "a small image";
    EXPECT_FALSE(taken({{128, 64, 128, 128}, 62, {3}, {2}, {1}, {1}}, dtype)) << "no whole vectors";
  }
  EXPECT_FALSE(taken({{16, 64, 24, 48, 48}, 128, {3}, {2}, {1}})) << "too many channels of volumes";
  EXPECT_TRUE(taken({{128, 64, 128, 128}, 64, {3}, {2}, {1}, {1}}, DType::f32, /*followed=*/true));
  EXPECT_TRUE(taken({{2, 64, 48, 48, 48}, 32, {2}, {2}, {0}})) << "single taps";
  EXPECT_TRUE(taken({{2, 128, 24, 24, 24}, 64, {2}, {2}, {0}}));
  EXPECT_FALSE(taken({{64, 192, 28, 28}, 96, {2}, {2}, {0}})) << "too many channels of images";
  EXPECT_FALSE(taken({{128, 64, 128, 128}, 64, {3}, {2}, {1}, {1}}, DType::f64));
  set_numerics({.tf32 = false});
  EXPECT_FALSE(taken({{128, 64, 128, 128}, 64, {3}, {2}, {1}, {1}}));
}

/// A program with operands of every kind follows in the same kernel.
TEST_F(CudaPhaseConvolution, TakesAProgram) {
  const ops::Operator& chain = ops::registry().find("chain");
  const auto program = ops::ElementwiseProgram::parse(
      "y0 = add(x0, x1); y1 = hard_swish(y0); y2 = multiply(y1, x2); y3 = add(y2, x3); y4 = clamp(y3) {\"min\":-1.0,\"max\":1.5}; return "
      "y4");
  struct Call {
    const char* centre;
    Shape input, weight, output;
  };
  const Call cases[] = {{"conv_transpose2d", {4, 32, 100, 180}, {32, 24, 3, 3}, {4, 24, 200, 360}},
                        {"conv_transpose3d", {2, 16, 20, 60, 44}, {16, 32, 3, 3, 3}, {2, 32, 40, 120, 88}}};
  for (const Call& of : cases) {
    const ConvolutionOptions options{.stride = {2}, .padding = {1}, .output_padding = {1}};
    const ops::Attributes attributes = ops::ChainAttributes{{{}, 0, {&ops::registry().find(of.centre), options}, program}};
    Shape channels = Shape::filled(of.output.rank() - 1, 1), samples = Shape::filled(of.output.rank(), 1);
    channels[0] = of.output[1];
    samples[0] = of.output[0];
    for (const Arithmetic& arithmetic : arithmetics) {
      if (!arithmetic.tf32) continue;
      std::vector<Tensor> inputs;
      for (const Shape& shape : {of.input, of.weight, channels, samples, of.output}) {
        inputs.push_back(normal_tensor(shape, DType::f32, inputs.size()).to(arithmetic.dtype));
      }
      const Tensor expected = ops::run(chain, exactly(inputs), attributes)[0], found = run_on_gpu(chain, inputs, attributes)[0];
      EXPECT_TRUE(near(found.to(DType::f64), expected, arithmetic.tolerance, 30)) << of.centre << ' ' << arithmetic;
    }
  }
}

}  // namespace
}  // namespace frit::phase_convolution_test
