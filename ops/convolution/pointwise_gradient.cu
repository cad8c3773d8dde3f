// The weight gradient of a convolution of size 1 over channels-last images, (K, C): of each plane of pixels the product of the output's
// gradient (pixels, K), transposed, and the input (pixels, C), by cuBLASLt; then the sum over the planes. Reads both images once.

#include "frit/ops/convolution/pointwise_gradient.h"

#include "frit/core/numerics.h"
#include "frit/ops/cuda/cublas.h"
#include "frit/ops/cuda/reduce_states.h"

namespace frit::ops {
namespace {

/// What cuBLASLt's factors are aligned to.
constexpr std::int64_t vector_bytes = 16;

struct Planes {
  std::int64_t count, pixels;
  std::int64_t rows, columns;  ///< of the result
  DType dtype;

  explicit Planes(const ConvolutionCall& call)
      : count(call.geometry.batch * call.geometry.input[0]),
        pixels(call.geometry.input[1] * call.geometry.input[2]),
        rows(call.geometry.out_channels),
        columns(call.geometry.in_channels),
        dtype(call.operands.weight.dtype()) {}

  GemmShape product() const {
    return {.rows = rows,
            .columns = columns,
            .depth = pixels,
            .a_row_stride = 1,
            .a_depth_stride = rows,
            .b_depth_stride = columns,
            .b_column_stride = 1,
            .batch = {count},
            .a_batch_strides = {pixels * rows},
            .b_batch_strides = {pixels * columns}};
  }
  Shape partial_sums() const { return {count, rows * columns}; }
  std::size_t partial_bytes() const { return static_cast<std::size_t>(byte_count(partial_sums(), size_of(dtype))); }
};

}  // namespace

bool is_pointwise_gradient(const ConvolutionCall& call) {
  constexpr ImageAxes one = {1, 1, 1}, none = {0, 0, 0};
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias] = call.operands;
  const bool rounds_factors = is_half(weight.dtype()) || (weight.dtype() == DType::f32 && numerics().tf32);
  const auto aligned = [&](std::int64_t channels) { return channels * static_cast<std::int64_t>(size_of(weight.dtype())) % vector_bytes == 0; };
  return call.kind == cudnn::ConvolutionKind::weight_gradient && !rounds_factors && g.kernel == one && g.stride == one && g.padding == none &&
         g.groups == 1 && aligned(g.in_channels) && aligned(g.out_channels) && input.is_contiguous(Layout::channels_last) &&
         output.is_contiguous(Layout::channels_last);
}

std::size_t pointwise_gradient_scratch(const ConvolutionCall& call) {
  const Planes planes(call);
  const std::size_t of_sum = LinePlan::scratch_bytes(planes.partial_sums(), {0}, sizeof(Sum<double>));
  return planes.partial_bytes() + std::max(cublas::product_scratch(planes.product()), of_sum);
}

void pointwise_gradient(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const Planes planes(call);
  const auto& [input, weight, output, bias] = call.operands;
  const std::size_t used = planes.partial_bytes();
  const Tensor partial = Tensor::over(scratch.data(), planes.partial_sums(), planes.dtype, weight.device(), nullptr);
  const std::span<std::byte> rest = scratch.subspan(used);
  cublas::multiply(planes.product(), output, input, {}, partial, rest, stream);
  dispatch_floating(planes.dtype, [&]<class T>() {
    const DividedSum<SumTerm<T>, ElementAsTerm<T>, T> sum({partial.data<T>()}, weight.data<T>(), 1);
    reduce_lines(stream, sum, LinePlan(partial, {0}), rest);
  });
}

}  // namespace frit::ops
