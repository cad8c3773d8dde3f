// The greatest (or least) element over any axes, how many equal it, and the gradient.

#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/reductions.cuh"

namespace frit::ops {
namespace {

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), reduction_axes(call), sizeof(CountedExtremum<MaximumOrder, double>));
}

/// Either result may be undefined.
template <class Order, class T>
SharedExtremum<Order, T> reduction_of(const KernelContext& call, const T* x) {
  return {{x}, data_or_null<T>(call.outputs[0]), data_or_null<std::int64_t>(call.outputs[1])};
}

template <class Order>
Kernel kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    const Tensor& input = call.inputs[0];
    dispatch_all(input.dtype(),
                 [&]<class T>() { body(reduction_of<Order>(call, input.data<T>()), Lines(input, reduction_axes(call, input.rank()))); });
  };
  return line_kernel(with_reduction, scratch);
}

template <class Order>
std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  const Dims axes = reduction_axes(call, staged_type(call, stages).shape.rank());
  if (!call.outputs[1].defined()) return channel_extremes<Order>(call, stages, axes);
  return channel_reduction(call, stages, axes, concat("SharedExtremum<", Order::name, ", "),
                           [&]<class T>() { return reduction_of<Order, T>(call, nullptr); });
}

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
  registry.add_cuda("amax", with_stages(values_compiled(kernel<MaximumOrder>(), centre<MaximumOrder>), centre<MaximumOrder>));
  registry.add_cuda("amin", with_stages(values_compiled(kernel<MinimumOrder>(), centre<MinimumOrder>), centre<MinimumOrder>));
  registry.add_cuda("extremum_backward",
                    {.run = backward_kernel, .halves = true, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true});
}
