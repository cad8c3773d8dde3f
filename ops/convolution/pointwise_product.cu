// Convolutions of size 1 over channels-last images as products of matrices, by cuBLASLt. An image is a matrix (pixels, channels), the
// weight one of (K, C). The weight's gradient is a sum over very many pixels: a product for each plane of them, and then the sum over the
// planes.

#include "frit/ops/convolution/convolution_rules.h"
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

/// The input by the weight transposed, or the output's gradient by the weight.
GemmShape image_product(const ImageCall& call) {
  const std::int64_t row = call.g.in_channels;  // of the weight
  return {.rows = call.g.batch * product(call.g.input),
          .columns = call.out_channels,
          .depth = call.in_channels,
          .a_row_stride = call.in_channels,
          .a_depth_stride = 1,
          .b_depth_stride = call.forward ? 1 : row,
          .b_column_stride = call.forward ? row : 1};
}

void sum_products(const ConvolutionCall& call, const Sizes& sizes, std::span<std::byte> scratch, CUstream_st* stream) {
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

std::optional<OwnKernel> pointwise_product(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  const auto aligned = [&](std::int64_t channels) {
    return channels * static_cast<std::int64_t>(size_of(weight.dtype())) % vector_bytes == 0;
  };
  if (on_tensor_cores(weight.dtype()) || !is_pointwise(g) || !aligned(g.in_channels) || !aligned(g.out_channels)) return {};
  if (!input.is_contiguous(Layout::channels_last) || !output.is_contiguous(Layout::channels_last)) return {};
  if (call.kind == ConvolutionKind::weight_gradient) {
    const Sizes sizes(call);
    const std::size_t of_sum = LinePlan::scratch_bytes(sizes.partial_sums(), {0}, sizeof(Sum<double>));
    return OwnKernel{"product", sizes.partial_bytes() + std::max(cublas::product_scratch(sizes.weight()), of_sum),
                     [&call, sizes](std::span<std::byte> scratch, CUstream_st* stream) { sum_products(call, sizes, scratch, stream); }};
  }
  const GemmShape product = image_product(ImageCall(call));
  const auto multiply = [&call, product](std::span<std::byte> scratch, CUstream_st* stream) {
    const ImageCall of(call);
    const Tensor rows = Tensor::over(of.result.raw(), {product.rows, product.columns}, of.result.dtype(), of.result.device(), nullptr);
    cublas::multiply(product, of.image, of.weight, call.operands.bias, rows, scratch, stream);
  };
  return OwnKernel{"product", cublas::product_scratch(product), multiply};
}

}  // namespace frit::ops
