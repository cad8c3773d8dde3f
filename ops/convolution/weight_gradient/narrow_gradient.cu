// Weight gradients of convolutions of size 1 with few channels on one side: sums down the columns of the other side's image.

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/cuda/column_sums.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

constexpr std::int64_t most_narrow = 8, most_wide = 256;

/// The gradient of `values` channels of the few and all of the others: products summed over positions, a thread's in float32.
template <class T>
struct NarrowGradient {
  using Computed = float;
  static constexpr int width = cuda::vector_width<T>, values = 4, rows_at_once = 4;
  using Total = ColumnTotals<values>;

  const T *wide, *narrow;  // (positions, columns), (positions, channels)
  T* gradient;
  int channels, first, column_step, channel_step;  ///< first: of the values; steps: of the gradient

  struct Column {};
  __device__ Column column(int, int) const { return {}; }
  __device__ double base(int, int) const { return 0; }

  __device__ void sum(float (&sums)[values][width], const Column (&)[width], ColumnIterator it, const ColumnSplit& split) const {
    while (it.row < it.end) {
      Rows<T, width, rows_at_once> rows;
      T factors[rows_at_once][values];
      rows.load(wide, it, split, true);
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = it.row + i * it.step;
#pragma unroll
        for (int v = 0; v < values; ++v) {
          factors[i][v] = row < it.end && first + v < channels ? narrow[row * channels + first + v] : T{};
        }
      }
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
        if (it.row >= it.end) continue;
#pragma unroll
        for (int v = 0; v < values; ++v) {
          const auto factor = convert<float>(factors[i][v]);
#pragma unroll
          for (int k = 0; k < width; ++k) sums[v][k] += factor * rows(i, k);
        }
      }
    }
  }
  __device__ Total total(const float (&sums)[values], double, const ColumnIterator&, const ColumnSplit&) const { return Total(sums); }

  __device__ void write(std::int64_t column, int v, double sum) const {
    if (first + v < channels) gradient[column * column_step + (first + v) * channel_step] = convert<T>(sum);
  }
  __device__ void finish(std::int64_t column, const Total& total) const {
#pragma unroll
    for (int v = 0; v < values; ++v) write(column, v, total.of[v]);
  }
  __device__ void finish(std::int64_t place, double sum) const { write(place / values, static_cast<int>(place % values), sum); }
};

/// The few channels, and the others.
struct Sides {
  bool narrow_output;
  const Tensor &narrow, &wide;

  explicit Sides(const ConvolutionCall& call)
      : narrow_output(call.geometry.out_channels <= call.geometry.in_channels),
        narrow(narrow_output ? call.operands.output : call.operands.input),
        wide(narrow_output ? call.operands.input : call.operands.output) {}

  Columns columns() const { return {1, wide.elements() / wide.dim(1), wide.dim(1)}; }
};

template <class T>
void run(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const Sides sides(call);
  const ColumnSplit split = split_sums(sides.columns(), cuda::vector_width<T>, sizeof(T));
  const int channels = static_cast<int>(sides.narrow.dim(1)), columns = static_cast<int>(sides.wide.dim(1));
  NarrowGradient<T> terms{.wide = sides.wide.data<T>(),
                          .narrow = sides.narrow.data<T>(),
                          .gradient = call.operands.weight.data<T>(),
                          .channels = channels,
                          .first = 0,
                          .column_step = sides.narrow_output ? 1 : channels,
                          .channel_step = sides.narrow_output ? columns : 1};
  double* const partial = partial_sums(split, scratch);
  for (; terms.first < channels; terms.first += terms.values) {
    launch_columns(reinterpret_cast<typename NarrowGradient<T>::Total*>(partial), terms, split, stream);
    if (partial != nullptr) finish_sums(partial, terms, split, stream, terms.values);
  }
}

}  // namespace

std::optional<OwnKernel> narrow_weight_gradient(const ConvolutionCall& call) {
  const DType dtype = call.operands.weight.dtype();
  if (call.kind != cudnn::ConvolutionKind::weight_gradient || dtype == DType::f64 || call.operands.input.dtype() != dtype) return {};
  const Sides sides(call);
  if (!is_pointwise(call.geometry) || sides.wide.elements() == 0 || sides.narrow.dim(1) > most_narrow) return {};
  const std::int64_t columns = sides.wide.dim(1), bytes = columns * static_cast<std::int64_t>(size_of(dtype));
  if (columns > most_wide || bytes % 16 != 0 || !lies_in_channels(sides.narrow) || !lies_in_channels(sides.wide)) return {};
  const auto compute = [&call](std::span<std::byte> scratch, CUstream_st* stream) {
    dispatch_f32_and_halves(call.operands.weight.dtype(), [&]<class T>() { run<T>(call, scratch, stream); });
  };
  return OwnKernel{"sums of narrow products", column_sums_scratch(sides.columns()) * NarrowGradient<float>::values, compute};
}

}  // namespace frit::ops
