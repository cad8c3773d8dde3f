// Sums of each line's elements up to each.

#include <cub/block/block_scan.cuh>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/cumulative_sum.h"

namespace frit::ops {
namespace {

/// A contiguous tensor's lines along one axis: (outer, size, inner).
struct ScannedLines {
  std::int64_t size, inner, lines;
  bool exclusive, reverse;

  /// Of the element that comes at `position` in the order of the sums.
  __device__ std::int64_t offset(std::int64_t line, std::int64_t position) const {
    return (line / inner * size + (reverse ? size - 1 - position : position)) * inner + line % inner;
  }
};

template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, std::int64_t, Computed<T>>;
template <class T>
using Result = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;

/// A thread a line, which it passes over once. Deterministic.
template <class T>
__global__ void scan_in_threads(Result<T>* y, const T* x, ScannedLines lines) {
  for (std::int64_t line = cuda::first_item(); line < lines.lines; line += cuda::item_step()) {
    Sum<T> before = 0;
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const std::int64_t at = lines.offset(line, i);
      const Sum<T> sum = Add<Sum<T>>{}(before, convert<Sum<T>>(x[at]));
      y[at] = convert<Result<T>>(lines.exclusive ? before : sum);
      before = sum;
    }
  }
}

constexpr int threads = 256, items = 8;

/// A block a line, which it passes over once, `items` elements a thread at a time. Deterministic.
template <class T>
__global__ void __launch_bounds__(threads) scan_in_blocks(Result<T>* y, const T* x, ScannedLines lines) {
  using Scan = cub::BlockScan<Sum<T>, threads>;
  __shared__ typename Scan::TempStorage storage;
  for (std::int64_t line = blockIdx.x; line < lines.lines; line += gridDim.x) {
    Sum<T> before_tile = 0;
    for (std::int64_t tile = 0; tile < lines.size; tile += threads * items) {
      const std::int64_t first = tile + threadIdx.x * items;
      Sum<T> terms[items], own = 0, before, total;
#pragma unroll
      for (int i = 0; i < items; ++i) {
        terms[i] = first + i < lines.size ? convert<Sum<T>>(x[lines.offset(line, first + i)]) : Sum<T>(0);
        own = Add<Sum<T>>{}(own, terms[i]);
      }
      Scan(storage).ExclusiveScan(own, before, Sum<T>(0), Add<Sum<T>>{}, total);
      before = Add<Sum<T>>{}(before_tile, before);
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const Sum<T> sum = Add<Sum<T>>{}(before, terms[i]);
        if (first + i < lines.size) y[lines.offset(line, first + i)] = convert<Result<T>>(lines.exclusive ? before : sum);
        before = sum;
      }
      before_tile = Add<Sum<T>>{}(before_tile, total);
      __syncthreads();
    }
  }
}

void run(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  if (input.elements() == 0) return;
  const auto& attributes = call.as<CumulativeSumAttributes>();
  const int axis = normalize_axis(attributes.axis, input.rank(), "cumulative_sum");
  const std::int64_t size = input.dim(axis);
  const ScannedLines lines{size, input.strides()[axis], input.elements() / size, attributes.exclusive, attributes.reverse};
  // Where neighbouring lines fill the device, and their threads read whole sectors.
  constexpr std::int64_t short_line = 32, warp = 32, enough_lines = 8192, most_blocks = 1 << 16;
  const bool in_threads = size <= short_line || (lines.inner >= warp && lines.lines >= enough_lines);
  dispatch_all(input.dtype(), [&]<class T>() {
    auto* const y = call.outputs[0].data<Result<T>>();
    if (in_threads) return cuda::launch(scan_in_threads<T>, cuda::loop_shape(lines.lines), call.stream, y, input.data<T>(), lines);
    const dim3 blocks(static_cast<unsigned>(std::min(lines.lines, most_blocks)));
    cuda::launch(scan_in_blocks<T>, {blocks, dim3(threads)}, call.stream, y, input.data<T>(), lines);
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(cumulative_sum) { registry.add_cuda("cumulative_sum", {.run = run, .halves = true}); }
