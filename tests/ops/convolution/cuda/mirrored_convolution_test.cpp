// Convolutions of stride 1 in the other direction.

#include "frit/ops/convolution/mirrored_convolution.h"

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "ops/tensor_core_checks.h"

namespace frit::mirrored_convolution_test {
namespace {

using CudaMirroredConvolution = OnTensorCores;
using cudnn::ConvolutionKind;

struct Call {
  Shape input, weight;
  ConvolutionOptions options = {};
};

/// (K, C, taps) as (C, K, taps in reverse).
Tensor mirror_of(const Tensor& weight) {
  const Tensor source = weight.transpose(0, 1).contiguous().reshape({weight.dim(1), weight.dim(0), -1});
  const Tensor result = Tensor::empty(source.shape(), source.dtype());
  const std::int64_t taps = source.dim(2);
  for (std::int64_t tap = 0; tap < taps; ++tap) copy(result.slice(2, tap, tap + 1), source.slice(2, taps - 1 - tap, taps - tap));
  Shape shape = weight.shape();
  std::swap(shape[0], shape[1]);
  return result.reshape(shape);
}

TEST_F(CudaMirroredConvolution, SwapsChannelsAndReversesTaps) {
  constexpr Layout layouts[] = {Layout::contiguous, Layout::channels_last};
  for (const Shape& shape : {Shape{40, 33, 3, 2}, Shape{3, 5, 3, 4}, Shape{65, 3, 2, 3, 3}, Shape{1, 70, 1, 1}}) {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
      const Tensor weight = normal_tensor(shape, dtype, 1), expected = mirror_of(weight);
      for (const Layout from : layouts) {
        for (const Layout to : layouts) {
          const Tensor given = weight.to(gpu).contiguous(from), mirror = Tensor::empty(expected.shape(), dtype, gpu, to);
          ops::mirror_weight(mirror, given, cuda::compute_stream(gpu.index));
          EXPECT_TRUE(same_bits(mirror.to(Device::cpu()), expected)) << shape << ' ' << dtype;
        }
      }
    }
  }
}

TEST_F(CudaMirroredConvolution, GivesTheSame) {
  const Call calls[] = {{{2, 33, 7, 9}, {40, 33, 3, 2}, {.padding = {1, 0}}},
                        {{1, 5, 12, 11}, {3, 5, 3, 4}, {.padding = {4, 1}, .dilation = {2, 1}}},
                        {{2, 3, 4, 5, 6}, {65, 3, 2, 3, 3}, {.padding = {0, 1, 2}}},
                        {{3, 70, 5, 5}, {1, 70, 1, 1}}};
  for (const Call& c : calls) {
    const ops::ConvolutionGeometry g = ops::convolution_geometry(c.input, c.weight, c.options);
    Shape output = c.input;
    output[1] = c.weight[0];
    for (int axis = 2; axis < output.rank(); ++axis) output[axis] = g.output[static_cast<std::size_t>(axis + 3 - output.rank())];
    for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
      for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
        SCOPED_TRACE(concat(c.input, ' ', c.weight, kind == ConvolutionKind::forward ? " forward" : " data gradient"));
        const auto random = [&](const Shape& shape, std::uint64_t seed) {
          return normal_tensor(shape, DType::f64, seed).to(gpu).contiguous(layout);
        };
        ops::ConvolutionCall call{kind, g, {random(c.input, 1), random(c.weight, 2), random(output, 3), {}}};
        ASSERT_TRUE(ops::has_mirror(call));
        CUstream_st* const stream = cuda::compute_stream(gpu.index);
        ops::direct_convolution(kind, g, call.operands, stream);
        const Tensor expected = call.operands.result(kind).to(Device::cpu());
        call.operands.result(kind).fill(NAN);
        // The weights need not lie alike.
        Shape swapped = c.weight;
        std::swap(swapped[0], swapped[1]);
        const Tensor weight = Tensor::empty(swapped, DType::f64, gpu, Layout::channels_last);
        ops::mirror_weight(weight, call.operands.weight, stream);
        const ops::ConvolutionCall mirror = ops::mirrored(call, weight);
        EXPECT_EQ(ops::mirrored(mirror, call.operands.weight).geometry, g);
        ops::direct_convolution(mirror.kind, mirror.geometry, mirror.operands, stream);
        EXPECT_TRUE(near(call.operands.result(kind).to(Device::cpu()), expected, 1e-12, largest_finite(expected)));
      }
    }
  }
}

TEST_F(CudaMirroredConvolution, NeedsStrideOneOneGroupAndLittlePadding) {
  const Call calls[] = {{{1, 4, 7, 7}, {4, 4, 3, 3}, {.stride = {1, 2}}},
                        {{1, 4, 7, 7}, {4, 2, 3, 3}, {.groups = 2}},
                        {{1, 4, 7, 7}, {4, 4, 3, 3}, {.padding = {2, 3}}}};
  for (const Call& c : calls) {
    EXPECT_FALSE(ops::has_mirror({ConvolutionKind::forward, ops::convolution_geometry(c.input, c.weight, c.options), {}}));
  }
  const ConvolutionOptions longer{.output_padding = {1}, .dilation = {2}};
  EXPECT_FALSE(ops::has_mirror({ConvolutionKind::data_gradient, ops::transposed_geometry({1, 4, 7, 7}, {4, 4, 3, 3}, longer), {}}));
}

// Where results must not depend on times, in two dimensions and TF32 always.
TEST_F(CudaMirroredConvolution, AgreesInCuDNN) {
  multiply_in(arithmetics[0]);
  expect_accurate("conv_transpose2d", {{2, 64, 20, 17}, {64, 32, 3, 3}, {32}}, ConvolutionOptions{.padding = {1}});
  expect_accurate("conv_transpose2d", {{1, 16, 9, 12}, {16, 24, 2, 3}}, ConvolutionOptions{.dilation = {1, 2}});
  const ConvolutionOptions options{.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}};
  expect_accurate("conv2d_data_gradient", {{2, 48, 14, 30}, {48, 16, 3, 3}}, ops::DataGradientOptions{options, {14, 30}});
}

}  // namespace
}  // namespace frit::mirrored_convolution_test
