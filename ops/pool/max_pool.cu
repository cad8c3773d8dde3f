// The largest element of each window, and its place in the plane.

#include "frit/ops/operator/registry.h"
#include "frit/ops/pool/pool_layouts.cuh"

namespace frit::ops {
namespace {

template <class T>
struct Maximum {
  using C = Computed<T>;

  /// The largest element so far, or -inf, at its place or at the first one.
  struct State {
    C value;
    std::int32_t place;

    __device__ friend State operator+(const State& a, const State& b) {
      const bool a_nan = a.value != a.value, b_nan = b.value != b.value, equal = (a_nan & b_nan) | (a.value == b.value);
      const bool a_wins = equal ? (a.place < b.place) != a_nan : a_nan | ((a.value > b.value) & !b_nan);
      return a_wins ? a : b;
    }
  };

  T* output;              ///< or null
  std::int32_t* indices;  ///< or null

  __device__ static C missing() { return -std::numeric_limits<C>::infinity(); }
  __device__ static State begin(std::int64_t place) { return {missing(), static_cast<std::int32_t>(place)}; }

  template <class Index, int count>
  __device__ void take(State& state, const C (&values)[count], const Index (&places)[count]) const {
#pragma unroll
    for (int j = 0; j < count; ++j) {
      if (replaces_maximum(values[j], state.value)) state = {values[j], static_cast<std::int32_t>(places[j])};
    }
  }
  template <class Index, int count>
  __device__ void finish(std::int64_t i, const PoolPlan<Index>&, const Window<Index>&, const State (&states)[count]) const {
    cuda::Vector<T, count> values;
    cuda::Vector<std::int32_t, count> places;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      values[k] = convert<T>(states[k].value);
      places[k] = states[k].place == no_place ? -1 : states[k].place;
    }
    if (output != nullptr) cuda::store_vector(output + i, values);
    if (indices != nullptr) *reinterpret_cast<cuda::Vector<std::int32_t, count>*>(indices + i) = places;
  }
  bool aligned() const { return cuda::aligned_for_vectors(output) && reinterpret_cast<std::uintptr_t>(indices) % 32 == 0; }
};

void run(const KernelContext& call, int image_rank) {
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), call.as<PoolOptions>(), image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    T* const output = data_or_null<T>(call.outputs[0]);
    std::int32_t* const indices = data_or_null<std::int32_t>(call.outputs[1]);
    reduce_all_windows<T>(call.inputs[0], g, call.stream, [&](std::int64_t offset) {
      return Maximum<T>{output != nullptr ? output + offset : nullptr, indices != nullptr ? indices + offset : nullptr};
    });
  });
}

/// A window hands its gradient to the element that was chosen.
template <class T>
struct ArgmaxShare {
  const T* gradient;
  const std::int32_t* indices;

  template <class Index, int count>
  __device__ void add(Computed<T> (&sums)[count], const PoolPlan<Index>&, Index element, Index, Index, Index, Index place) const {
    const auto g = *reinterpret_cast<const cuda::Vector<T, count>*>(gradient + element);
    const auto chosen = *reinterpret_cast<const cuda::Vector<std::int32_t, count>*>(indices + element);
#pragma unroll
    for (int k = 0; k < count; ++k) sums[k] += chosen[k] == place ? convert<Computed<T>>(g[k]) : Computed<T>{0};
  }
  bool aligned() const { return cuda::aligned_for_vectors(gradient) && reinterpret_cast<std::uintptr_t>(indices) % 32 == 0; }
};

void run_backward(const KernelContext& call, int image_rank) {
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), call.as<PoolBackwardAttributes>().options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    gather_all_windows<T>(call.outputs[0], g, call.stream, [&](std::int64_t offset) {
      return ArgmaxShare<T>{call.inputs[0].data<T>() + offset, call.inputs[1].data<std::int32_t>() + offset};
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max_pool) {
  for (const int image_rank : {2, 3}) {
    const std::string name = concat("max_pool", image_rank, "d");
    registry.add_cuda(name, pool_kernel([image_rank](const KernelContext& call) { run(call, image_rank); }, {0}, {0, 1}));
    registry.add_cuda(name + "_backward",
                      pool_kernel([image_rank](const KernelContext& call) { run_backward(call, image_rank); }, {0, 1}, {0}));
  }
}
