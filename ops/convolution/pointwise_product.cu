// Convolutions of size 1 over channels-last images as products of matrices, by cuBLASLt. An image is a matrix (pixels, channels), the
// weight one of (K, C). The weight's gradient is a sum over very many pixels: a product for each plane of them, and then the sum over the
// planes.

#include "frit/core/numerics.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/libraries/cuda/cublas.h"

namespace frit::ops {
namespace {

using cudnn::ConvolutionKind;

/// What cuBLASLt's factors are aligned to.
constexpr std::int64_t vector_bytes = 16;

struct Sizes {
  std::int64_t planes, plane_pixels, in_channels, out_channels;
  DType dtype;

  explicit Sizes(const ConvolutionCall& call)
      : planes(call.geometry.batch * call.geometry.input[0]),
        plane_pixels(call.geometry.input[1] * call.geometry.input[2]),
        in_channels(call.geometry.in_channels),
        out_channels(call.geometry.out_channels),
        dtype(call.operands.weight.dtype()) {}

  /// The input by the weight transposed, or the output's gradient by the weight.
  GemmShape image(bool forward) const {
    return {.rows = planes * plane_pixels,
            .columns = forward ? out_channels : in_channels,
            .depth = forward ? in_channels : out_channels,
            .a_row_stride = forward ? in_channels : out_channels,
            .a_depth_stride = 1,
            .b_depth_stride = forward ? 1 : in_channels,
            .b_column_stride = forward ? in_channels : 1};
  }
  /// The output's gradient transposed by the input, of each plane.
  GemmShape weight() const {
    return {.rows = out_channels,
            .columns = in_channels,
            .depth = plane_pixels,
            .a_row_stride = 1,
            .a_depth_stride = out_channels,
            .b_depth_stride = in_channels,
            .b_column_stride = 1,
            .batch = {planes},
            .a_batch_strides = {plane_pixels * out_channels},
            .b_batch_strides = {plane_pixels * in_channels}};
  }
  Shape partial_sums() const { return {planes, out_channels * in_channels}; }
  std::size_t partial_bytes() const { return static_cast<std::size_t>(byte_count(partial_sums(), size_of(dtype))); }
};

void sum_products(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const Sizes sizes(call);
  const auto& [input, weight, output, bias, others] = call.operands;
  const Tensor partial = Tensor::over(scratch.data(), sizes.partial_sums(), sizes.dtype, weight.device(), nullptr);
  const std::span<std::byte> rest = scratch.subspan(sizes.partial_bytes());
  cublas::multiply(sizes.weight(), output, input, {}, partial, rest, stream);
  dispatch_floating(sizes.dtype, [&]<class T>() {
    const DividedSum<T, T> sum(partial.data<T>(), weight.data<T>(), 1);
    reduce_lines(stream, sum, Lines(partial, {0}), rest);
  });
}

}  // namespace

bool is_pointwise_product(const ConvolutionCall& call) {
  constexpr ImageAxes one = {1, 1, 1}, none = {0, 0, 0};
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool rounds_factors = is_half(weight.dtype()) || (weight.dtype() == DType::f32 && numerics().tf32);
  const auto aligned = [&](std::int64_t channels) {
    return channels * static_cast<std::int64_t>(size_of(weight.dtype())) % vector_bytes == 0;
  };
  return !rounds_factors && g.kernel == one && g.stride == one && g.padding == none && g.groups == 1 && aligned(g.in_channels) &&
         aligned(g.out_channels) && input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last);
}

std::size_t pointwise_product_scratch(const ConvolutionCall& call) {
  const Sizes sizes(call);
  if (call.kind != ConvolutionKind::weight_gradient) return cublas::product_scratch(sizes.image(call.kind == ConvolutionKind::forward));
  const std::size_t of_sum = LinePlan::scratch_bytes(sizes.partial_sums(), {0}, sizeof(Sum<double>));
  return sizes.partial_bytes() + std::max(cublas::product_scratch(sizes.weight()), of_sum);
}

void pointwise_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  if (call.kind == ConvolutionKind::weight_gradient) return sum_products(call, scratch, stream);
  const bool forward = call.kind == ConvolutionKind::forward;
  const auto& [input, weight, output, bias, others] = call.operands;
  const Tensor& result = forward ? output : input;
  const GemmShape product = Sizes(call).image(forward);
  const Tensor rows = Tensor::over(result.raw(), {product.rows, product.columns}, result.dtype(), result.device(), nullptr);
  cublas::multiply(product, forward ? input : output, weight, bias, rows, scratch, stream);
}

}  // namespace frit::ops
