// The greatest (or least) element over any axes, how many equal it, and the gradient.

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/extremum.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

template <class Order, class T>
struct CountedExtremum {
  T value;
  std::int64_t count;

  __device__ static CountedExtremum identity() { return {Order::template start<T>(), 0}; }
  __device__ static CountedExtremum merge(const CountedExtremum& a, const CountedExtremum& b) {
    if (ties(a.value, b.value)) return {a.value, a.count + b.count};
    return replaces<Order>(b.value, a.value) ? b : a;
  }
};

template <class Order, class T>
struct SharedExtremum {
  using C = Computed<T>;
  using State = CountedExtremum<Order, C>;
  TensorSource<T, C> source;
  T* value;             // (results), or null
  std::int64_t* count;  // (results), or null

  __device__ static C missing() { return Order::template start<C>(); }
  __device__ State read(const C (&elements)[batch_size], const Batch& batch) const {
    State state = State::identity();
#pragma unroll
    for (int i = 0; i < batch_size; ++i) state = State::merge(state, {elements[i], static_cast<std::int64_t>(batch.has(i))});
    return state;
  }
  __device__ void finish(const State& state, const Line& line) const {
    if (value != nullptr) value[line.result] = convert<T>(state.value);
    if (count != nullptr) count[line.result] = state.count;
  }
};

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), reduction_axes(call), sizeof(CountedExtremum<Maximum, double>));
}

Dims axes_of(const KernelContext& call, const Tensor& input) {
  return normalize_axes(call.as<ReductionAttributes>().axes, input.rank(), call.op.name.c_str());
}

/// Either result may be undefined.
template <class Order>
void kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  const Tensor &values = call.outputs[0], &counts = call.outputs[1];
  dispatch_all(input.dtype(), [&]<class T>() {
    const SharedExtremum<Order, T> reduction{{input.data<T>()}, data_or_null<T>(values), data_or_null<std::int64_t>(counts)};
    reduce_lines(call.stream, reduction, Lines(input, axes_of(call, input)), call.scratch);
  });
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
    visit_lines(call.stream, shared, Lines(input, axes_of(call, input)));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(amax) {
  registry.add_cuda("amax", {.run = kernel<Maximum>, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("amin", {.run = kernel<Minimum>, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("extremum_backward",
                    {.run = backward_kernel, .halves = true, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true});
}
