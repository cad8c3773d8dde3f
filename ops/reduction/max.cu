// The first of the greatest (or least) elements along an axis, and its place.

#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/extremum.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

template <class Order, class T>
struct Extremum {
  T value;
  std::int64_t index;

  __device__ static Extremum identity() { return {Order::template start<T>(), std::numeric_limits<std::int64_t>::max()}; }
  __device__ static Extremum merge(const Extremum& a, const Extremum& b) {
    const bool earlier = b.index < a.index;
    return replaces<Order>(b.value, a.value) || (earlier && ties(b.value, a.value)) ? b : a;
  }
};

template <class Order, class T>
struct FirstExtremum {
  using C = Computed<T>;
  using State = Extremum<Order, C>;
  TensorSource<T, C> source;
  T* value;             // (results), or null
  std::int64_t* index;  // (results), or null

  __device__ static C missing() { return Order::template start<C>(); }
  __device__ State read(const C (&elements)[batch_size], const Batch& batch) const {
    C value = elements[0];
    int place = 0;  // in the batch: a short number to choose
#pragma unroll
    for (int i = 1; i < batch_size; ++i) {
      const bool better = batch.has(i) && replaces<Order>(elements[i], value);
      value = better ? elements[i] : value;
      place = better ? i : place;
    }
    return {value, batch.position + static_cast<std::int64_t>(place) * batch.step};
  }
  __device__ void finish(const State& state, const Line& line) const {
    if (value != nullptr) value[line.result] = convert<T>(state.value);
    if (index != nullptr) index[line.result] = state.index;
  }
};

Dims axis_of(const Attributes& attributes, int rank, const Operator& op) {
  return {normalize_axis(attributes.as<AxisReductionAttributes>().axis, rank, op.name.c_str())};
}

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), axis_of(call.attributes, call.shape(0).rank(), call.op), sizeof(Extremum<Maximum, double>));
}

/// Either result may be undefined.
template <class Order>
void run_extremum(const KernelContext& call, const Tensor& values, const Tensor& indices) {
  const Tensor& input = call.inputs[0];
  const Lines lines(input, axis_of(call.attributes, input.rank(), call.op));
  dispatch_all(input.dtype(), [&]<class T>() {
    const FirstExtremum<Order, T> reduction{{input.data<T>()}, data_or_null<T>(values), data_or_null<std::int64_t>(indices)};
    reduce_lines(call.stream, reduction, lines, call.scratch);
  });
}

template <class Order>
void kernel(const KernelContext& call) {
  run_extremum<Order>(call, call.outputs[0], call.outputs[1]);
}

void argmax_kernel(const KernelContext& call) { run_extremum<Maximum>(call, {}, call.outputs[0]); }

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max) {
  registry.add_cuda("max", {.run = kernel<Maximum>, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("min", {.run = kernel<Minimum>, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("argmax", {.run = argmax_kernel, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
}
