// The greatest (or least) element over any axes, how many equal it, and the gradient.

#include "frit/ops/cuda/elementwise.cuh"
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
  using State = CountedExtremum<Order, T>;
  TensorSource<T> source;
  T* value;             // (results), or null
  std::int64_t* count;  // (results), or null

  __device__ static T missing() { return Order::template start<T>(); }
  __device__ State read(const T (&elements)[batch_size], const Batch& batch) const {
    State state = State::identity();
#pragma unroll
    for (int i = 0; i < batch_size; ++i) state = State::merge(state, {elements[i], static_cast<std::int64_t>(batch.has(i))});
    return state;
  }
  __device__ void finish(const State& state, const Line& line) const {
    if (value != nullptr) value[line.result] = state.value;
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
  dispatch_arithmetic(input.dtype(), [&]<class T>() {
    const SharedExtremum<Order, T> reduction{
        {input.data<T>()}, values.defined() ? values.data<T>() : nullptr, counts.defined() ? counts.data<std::int64_t>() : nullptr};
    reduce_lines(call.stream, reduction, Lines(input, axes_of(call, input)), call.scratch);
  });
}

/// Equal extrema share the gradient evenly, NaNs too.
struct ShareGradient {
  template <class T>
  __device__ T operator()(T gradient, T x, T extremum, std::int64_t count) const {
    return ties(x, extremum) ? gradient / static_cast<T>(count) : T{0};
  }
};

void backward_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[1];
  const Shape kept = reduced_shape(input.shape(), axes_of(call, input), /*keep_dims=*/true);
  const Tensor operands[] = {call.inputs[0].reshape(kept), input, call.inputs[2].reshape(kept), call.inputs[3].reshape(kept)};
  dispatch_floating(input.dtype(),
                    [&]<class T>() { map_elements<T, T, T, T, std::int64_t>(call.stream, call.outputs[0], operands, ShareGradient{}); });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(amax) {
  registry.add_cuda("amax", {.run = kernel<Maximum>, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("amin", {.run = kernel<Minimum>, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("extremum_backward", {.run = backward_kernel, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
