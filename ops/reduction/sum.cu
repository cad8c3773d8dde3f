// Sums and means over any axes.

#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

std::size_t scratch(const InferContext& call) {
  static_assert(sizeof(Sum<float>) == sizeof(Sum<double>) && sizeof(Sum<double>) == sizeof(Sum<std::uint64_t>));
  return LinePlan::scratch_bytes(call.shape(0), reduction_axes(call), sizeof(Sum<double>));
}

template <class T, class Result>
void launch_sum(const KernelContext& call, bool divide_by_count) {
  const Tensor& input = call.inputs[0];
  const Lines lines(input, normalize_axes(call.as<ReductionAttributes>().axes, input.rank(), call.op.name.c_str()));
  const DividedSum<T, Result> reduction(input.data<T>(), call.outputs[0].data<Result>(), divide_by_count ? lines.count() : 1);
  reduce_lines(call.stream, reduction, lines, call.scratch);
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
