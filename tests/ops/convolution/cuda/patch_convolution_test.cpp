// Convolutions patch by patch, against the definition in float64.

#include "frit/ops/convolution/tiles/patch_convolution.h"

#include "frit/ops/convolution/convolution_epilogue.h"
#include "frit/ops/convolution/direct_convolution.h"
#include "frit/ops/convolution/geometry.h"
#include "ops/tensor_core_checks.h"

namespace frit {
namespace {

using cudnn::ConvolutionKind;

struct Sizes {
  Shape input;
  std::int64_t outputs;
  Dims kernel = {3}, padding = {1}, stride = {1};
};

/// Of random tensors, or of none.
ops::ConvolutionCall call_of(const Sizes& sizes, ConvolutionKind kind, DType dtype, Device device, bool filled,
                             Layout weight_layout = Layout::channels_last) {
  const int axes = sizes.input.rank() - 2;
  Shape weight = {sizes.outputs, sizes.input[1]}, output = {sizes.input[0], sizes.outputs};
  for (int axis = 0; axis < axes; ++axis) weight.push_back(sizes.kernel.rank() == 1 ? sizes.kernel[0] : sizes.kernel[axis]);
  const ops::ConvolutionGeometry g =
      ops::convolution_geometry(sizes.input, weight, ops::canonical({.stride = sizes.stride, .padding = sizes.padding}, axes));
  for (const std::int64_t size : std::span(g.output).last(static_cast<std::size_t>(axes))) output.push_back(size);
  const auto tensor = [&](const Shape& shape, std::uint64_t seed, Layout layout = Layout::channels_last) {
    return filled ? normal_tensor(shape, DType::f32, seed).to(dtype).to(device).contiguous(layout)
                  : Tensor::over(nullptr, shape, dtype, device, nullptr, layout);
  };
  return {kind, g, {tensor(sizes.input, 1), tensor(weight, 2, weight_layout), tensor(output, 3), {}}};
}

/// Two and three axes, 32, 64 and 128 columns, channels that fill no step or no block, patches that fill no image, many samples.
const Sizes calls[] = {{{2, 64, 17, 21}, 128, {3}, {0}},
                       {{3, 40, 9, 40}, 48},
                       {{2, 128, 14, 14}, 192},
                       {{40, 32, 7, 7}, 256},
                       {{2, 24, 70, 65}, 32},
                       {{1, 64, 30, 7}, 64, {5}, {2}},
                       {{2, 16, 9, 31}, 40, {7}, {3}},
                       {{2, 32, 8, 9}, 16, {2}, {0}},
                       {{2, 32, 12, 13}, 24, {3, 4}, {1, 2}},
                       {{3, 16, 20, 33}, 64, {1}, {0}},
                       {{2, 32, 5, 9, 6}, 64},
                       {{1, 16, 13, 14, 33}, 32},
                       {{1, 48, 6, 11, 10}, 128, {3}, {0}},
                       {{1, 16, 4, 6, 5}, 48, {1, 3, 3}, {0, 1, 1}},
                       {{1, 16, 9, 6, 5}, 24, {3, 2, 4}, {1, 0, 2}},
                       {{2, 64, 17, 22}, 128, {3}, {1}, {2}},
                       {{1, 32, 9, 12, 11}, 64, {1, 3, 3}, {0, 1, 1}, {1, 2, 2}},
                       {{2, 32, 12, 15}, 40, {1}, {0}, {2}}};

class CudaPatchConvolution : public OnHopper {};

TEST_F(CudaPatchConvolution, AgreesWithTheDefinition) {
  for (const Sizes& sizes : calls) {
    for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
      if (kind == ConvolutionKind::data_gradient && sizes.stride != Dims{1}) continue;
      for (const Arithmetic& arithmetic : arithmetics) {
        if (!arithmetic.tf32) continue;
        SCOPED_TRACE(concat(sizes.input, ' ', sizes.outputs, ' ', arithmetic.dtype, kind == ConvolutionKind::forward ? "" : " gradient"));
        const bool biased = sizes.outputs % 64 == 0;
        ops::ConvolutionCall call = call_of(sizes, kind, arithmetic.dtype, gpu, true, biased ? Layout::contiguous : Layout::channels_last);
        ASSERT_TRUE(ops::patch_kernel(call, 132));
        if (biased) call.operands.bias = normal_tensor({call.operands.result(kind).dim(1)}, DType::f32, 4).to(arithmetic.dtype).to(gpu);
        Tensor scratch = Tensor::empty({static_cast<std::int64_t>(ops::patch_convolution_scratch(call))}, DType::u8, gpu);
        const std::span<std::byte> memory(static_cast<std::byte*>(scratch.raw()), static_cast<std::size_t>(scratch.elements()));
        Tensor result = call.operands.result(kind);
        const auto found = [&] {
          result.fill(NAN);
          EXPECT_TRUE(ops::patch_convolution(call, memory, cuda::compute_stream(gpu.index)));
          return result.to(Device::cpu()).contiguous();
        };
        ops::ConvolutionCall exact = call;
        for (Tensor* const t : {&exact.operands.input, &exact.operands.weight, &exact.operands.output}) *t = t->to(DType::f64);
        if (biased) exact.operands.bias = call.operands.bias.to(DType::f64);
        ops::direct_convolution(kind, exact.geometry, exact.operands, cuda::compute_stream(gpu.index));
        const Tensor right = exact.operands.result(kind).to(Device::cpu()).contiguous(), own = found();
        EXPECT_TRUE(near(own.to(DType::f64), right, arithmetic.tolerance, largest_finite(right)));
        EXPECT_TRUE(same_bits(own, found()));
      }
    }
  }
}

TEST_F(CudaPatchConvolution, IsTakenWhereItIsFaster) {
  const auto taken = [&](const Sizes& sizes, ConvolutionKind kind = ConvolutionKind::forward, DType dtype = DType::f32) {
    return ops::is_patch_convolution(call_of(sizes, kind, dtype, gpu, false));
  };
  EXPECT_TRUE(taken({{128, 64, 128, 128}, 128}));
  EXPECT_TRUE(taken({{64, 256, 14, 14}, 256}, ConvolutionKind::data_gradient));
  EXPECT_FALSE(taken({{64, 256, 14, 14}, 256})) << "cuDNN's forward convolutions are faster than its gradients";
  EXPECT_FALSE(taken({{64, 512, 7, 7}, 512})) << "patches of which images fill few";
  EXPECT_FALSE(taken({{64, 256, 56, 56}, 64, {1}, {0}})) << "a product of matrices";
  EXPECT_FALSE(taken({{128, 64, 128, 128}, 128}, ConvolutionKind::forward, DType::f16));
  for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) EXPECT_TRUE(taken({{2, 128, 48, 48, 48}, 64}, kind, dtype)) << dtype;
  }
  EXPECT_FALSE(taken({{128, 62, 128, 128}, 128})) << "no whole vectors";
  EXPECT_FALSE(taken({{128, 64, 128, 128}, 128}, ConvolutionKind::forward, DType::f64));
  set_numerics({.tf32 = false});
  EXPECT_FALSE(taken({{128, 64, 128, 128}, 128}));
}

}  // namespace
}  // namespace frit
