// The largest element of each window, and its place in the plane.

#include "frit/ops/pool/pool_cuda.h"
#include "frit/ops/registry.h"

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
  template <class Index>
  __device__ void finish(std::int64_t i, const PoolPlan<Index>&, const Window<Index>&, const State& state) const {
    if (output != nullptr) output[i] = convert<T>(state.value);
    if (indices != nullptr) indices[i] = state.place == no_place ? -1 : state.place;
  }
};

void run(const KernelContext& call, int image_rank) {
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), call.as<PoolOptions>(), image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    for_each_launch(g, [&]<class Index>(std::int64_t first, std::int64_t planes) {
      const std::int64_t offset = first * g.output_elements();
      const Maximum<T> maximum{call.outputs[0].defined() ? call.outputs[0].data<T>() + offset : nullptr,
                               call.outputs[1].defined() ? call.outputs[1].data<std::int32_t>() + offset : nullptr};
      launch_reduction<Index>(maximum, call.inputs[0].data<T>() + first * g.image_elements(), g, planes, call.stream);
    });
  });
}

/// A window hands its gradient to the element that was chosen.
template <class T>
struct WinnerShare {
  const T* gradient;
  const std::int32_t* indices;

  template <class Index>
  __device__ Computed<T> operator()(const PoolPlan<Index>&, Index row, Index, Index, Index column, Index place) const {
    const auto g = convert<Computed<T>>(gradient[row + column]);
    return indices[row + column] == place ? g : Computed<T>{0};
  }
};

void run_backward(const KernelContext& call, int image_rank) {
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), call.as<PoolBackwardAttributes>().options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    for_each_launch(g, [&]<class Index>(std::int64_t first, std::int64_t planes) {
      const std::int64_t offset = first * g.output_elements();
      const WinnerShare<T> share{call.inputs[0].data<T>() + offset, call.inputs[1].data<std::int32_t>() + offset};
      launch_gather<Index>(call.outputs[0].data<T>() + first * g.image_elements(), share, g, planes, call.stream);
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max_pool) {
  for (const int image_rank : {2, 3}) {
    const std::string name = concat("max_pool", image_rank, "d");
    registry.add_cuda(name, {.run = [image_rank](const KernelContext& call) { run(call, image_rank); }, .halves = true});
    registry.add_cuda(name + "_backward",
                      {.run = [image_rank](const KernelContext& call) { run_backward(call, image_rank); }, .halves = true});
  }
}
