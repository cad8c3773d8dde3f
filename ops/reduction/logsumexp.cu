// log(sum(exp(x))) over any axes, and its gradient.

#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/elementwise/scalar_math.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

template <class T>
struct LogOfSumExp : LogSumExpOf<T, Computed<T>> {
  using C = Computed<T>;
  T* y;              // (results), or null
  C *maximum, *sum;  // (results), or null

  __device__ void finish(const LogSumExp<C>& state, const Line& line) const {
    if (y != nullptr) y[line.result] = convert<T>(state.shift_of(state.maximum) + logarithm(state.sum.value()));
    if (maximum != nullptr) maximum[line.result] = state.maximum;
    if (sum != nullptr) sum[line.result] = state.sum.value();
  }
};

Dims axes_of(const KernelContext& call, const Tensor& input) {
  return normalize_axes(call.as<ReductionAttributes>().axes, input.rank(), call.op.name.c_str());
}

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), reduction_axes(call), sizeof(LogSumExp<double>));
}

void kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  dispatch_floating_and_halves(input.dtype(), [&]<class T>() {
    using C = Computed<T>;
    const LogOfSumExp<T> reduction{
        {{input.data<T>()}}, data_or_null<T>(call.outputs[0]), data_or_null<C>(call.outputs[1]), data_or_null<C>(call.outputs[2])};
    reduce_lines(call.stream, reduction, Lines(input, axes_of(call, input)), call.scratch);
  });
}

/// From the saved maximum and sum, not from the rounded result: the weights sum to 1 at any magnitude. All -inf gives NaN.
template <class T>
struct SpreadGradient {
  using C = Computed<T>;
  T* output;
  TensorSource<T> source;
  const T* gradient;           // (results)
  Statistics<T> maximum, sum;  // (results)

  struct Map {
    C maximum, scale;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t) const {
      return convert<T>(exponential(convert<C>(raw[i]) - maximum) * scale);
    }
  };
  __device__ Map map(const Line& line) const { return {maximum[line.result], convert<C>(gradient[line.result]) / sum[line.result]}; }
};

void backward_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[1];
  dispatch_floating_and_halves(input.dtype(), [&]<class T>() {
    const SpreadGradient<T> spread{call.outputs[0].data<T>(),
                                   {input.data<T>()},
                                   call.inputs[0].data<T>(),
                                   Statistics<T>(call.inputs[2]),
                                   Statistics<T>(call.inputs[3])};
    visit_lines(call.stream, spread, Lines(input, axes_of(call, input)));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp) {
  registry.add_cuda("logsumexp", {.run = kernel, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("logsumexp_backward",
                    {.run = backward_kernel, .halves = true, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true});
}
