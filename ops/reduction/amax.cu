// The greatest (or least) element over any axes, how many equal it, and the gradient.

#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"

namespace frit::ops {
namespace {

/// Equal extrema share the gradient evenly, NaNs too.
template <class T>
struct SharedGradient {
  using C = Computed<T>;
  T* output;
  TensorSource<T> source;
  const T *gradient, *extremum;  // (results)
  const std::int64_t* count;     // (results)

  struct Map {
    T share;
    C extremum;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t) const {
      return ties(convert<C>(raw[i]), extremum) ? share : T{};
    }
  };
  __device__ Map map(const Line& line) const {
    const C share = convert<C>(gradient[line.result]) / static_cast<C>(count[line.result]);
    return {convert<T>(share), convert<C>(extremum[line.result])};
  }
};

void backward_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[1];
  dispatch_floating_and_halves(input.dtype(), [&]<class T>() {
    const SharedGradient<T> shared{call.outputs[0].data<T>(),
                                   {input.data<T>()},
                                   call.inputs[0].data<T>(),
                                   call.inputs[2].data<T>(),
                                   call.inputs[3].data<std::int64_t>()};
    visit_lines(call.stream, shared, Lines(input, reduction_axes(call, input.rank())));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(amax) {
  registry.add_cuda("amax", staged_extremum_kernel<SharedExtremum, MaximumOrder, ReductionAttributes>("SharedExtremum"));
  registry.add_cuda("amin", staged_extremum_kernel<SharedExtremum, MinimumOrder, ReductionAttributes>("SharedExtremum"));
  registry.add_cuda("extremum_backward",
                    {.run = backward_kernel, .halves = true, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true});
}
