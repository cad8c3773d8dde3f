// Sums and means over any axes.

#include "frit/ops/cuda/column_sums.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

/// Of an image in either layout.
std::size_t scratch(const InferContext& call) {
  static_assert(sizeof(Sum<float>) == sizeof(Sum<double>) && sizeof(Sum<double>) == sizeof(Sum<std::uint64_t>));
  const Shape& shape = call.shape(0);
  std::size_t bytes = LinePlan::scratch_bytes(shape, reduction_axes(call), sizeof(Sum<double>));
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    if (layout == Layout::channels_last && shape.rank() < 3) continue;
    const auto columns = columns_of(Lines(shape, dense_strides(shape, layout), reduction_axes(call)));
    if (columns) bytes = std::max(bytes, column_sums_scratch(*columns));
  }
  return bytes;
}

template <class T, class Result>
void launch_sum(const KernelContext& call, bool divide_by_count) {
  const Tensor& input = call.inputs[0];
  const Lines lines(input, normalize_axes(call.as<ReductionAttributes>().axes, input.rank(), call.op.name.c_str()));
  const std::int64_t divisor = divide_by_count ? lines.count() : 1;
  const T* const x = input.data<T>();
  Result* const y = call.outputs[0].data<Result>();
  if constexpr (!std::is_integral_v<T>) {
    if (const auto columns = columns_of(lines)) return sum_columns_of(y, x, *columns, divisor, call.scratch, call.stream);
  }
  reduce_lines(call.stream, DividedSum<T, Result>(x, y, divisor), lines, call.scratch);
}

void sum_kernel(const KernelContext& call) {
  const auto run = [&]<class T>() { launch_sum<T, std::conditional_t<std::is_integral_v<T>, std::int64_t, T>>(call, false); };
  dispatch_all(call.inputs[0].dtype(), run);
}

void mean_kernel(const KernelContext& call) {
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() { launch_sum<T, T>(call, true); });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(sum) {
  registry.add_cuda("sum", {.run = sum_kernel, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("mean", {.run = mean_kernel, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
}
