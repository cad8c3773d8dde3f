// log(sum(exp(x))) over any axes, and its gradient.

#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/elementwise/scalar_math.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

template <class T>
struct LogOfSumExp : LogSumExpOf<T> {
  T *y, *maximum, *sum;  // (results), or null

  __device__ void finish(const LogSumExp<T>& state, const Line& line) const {
    if (y != nullptr) y[line.result] = state.shift_of(state.maximum) + logarithm(state.sum.value());
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
  dispatch_floating(input.dtype(), [&]<class T>() {
    const auto data = [&](std::size_t output) { return call.outputs[output].defined() ? call.outputs[output].data<T>() : nullptr; };
    const LogOfSumExp<T> reduction{{{input.data<T>()}}, data(0), data(1), data(2)};
    reduce_lines(call.stream, reduction, Lines(input, axes_of(call, input)), call.scratch);
  });
}

/// From the saved maximum and sum, not from the rounded result: the weights sum to 1 at any magnitude. All -inf gives NaN.
struct SpreadGradient {
  template <class T>
  __device__ T operator()(T gradient, T x, T maximum, T sum) const {
    return exponential(x - maximum) * (gradient / sum);
  }
};

void backward_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[1];
  const Shape kept = reduced_shape(input.shape(), axes_of(call, input), /*keep_dims=*/true);
  const Tensor operands[] = {call.inputs[0].reshape(kept), input, call.inputs[2].reshape(kept), call.inputs[3].reshape(kept)};
  dispatch_floating(input.dtype(),
                    [&]<class T>() { map_elements<T, T, T, T, T>(call.stream, call.outputs[0], operands, SpreadGradient{}); });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp) {
  registry.add_cuda("logsumexp", {.run = kernel, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("logsumexp_backward", {.run = backward_kernel, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
