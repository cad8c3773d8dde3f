// log(sum(exp(x))) over any axes, and its gradient.

#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"

namespace frit::ops {
namespace {

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), reduction_axes(call), sizeof(LogSumExp<double>));
}

/// Any result may be undefined.
template <class T>
LogOfSumExp<T> reduction_of(const KernelContext& call, const T* x) {
  using C = Computed<T>;
  return {{{x}}, data_or_null<T>(call.outputs[0]), data_or_null<C>(call.outputs[1]), data_or_null<C>(call.outputs[2])};
}

Kernel kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    const Tensor& input = call.inputs[0];
    dispatch_floating_and_halves(
        input.dtype(), [&]<class T>() { body(reduction_of(call, input.data<T>()), Lines(input, reduction_axes(call, input.rank()))); });
  };
  return line_kernel(with_reduction, scratch);
}

std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  return channel_reduction(call, stages, reduction_axes(call, staged_type(call, stages).shape.rank()), "LogOfSumExp<",
                           [&]<class T>() { return reduction_of<T>(call, nullptr); });
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
    visit_lines(call.stream, spread, Lines(input, reduction_axes(call, input.rank())));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp) {
  registry.add_cuda("logsumexp", with_stages(kernel(), centre));
  registry.add_cuda("logsumexp_backward",
                    {.run = backward_kernel, .halves = true, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true});
}
