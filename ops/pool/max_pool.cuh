#pragma once

#include <limits>

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/extreme.cuh"
#include "frit/ops/pool/channel_windows.cuh"
#include "frit/ops/pool/running_maximum.h"

namespace frit::ops {

// Max pooling's part in the kernels of pooling. NVRTC compiles this header too.

template <class C>
struct WindowMaximum {
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
  __device__ cuda::Vector<C, count> finish(std::int64_t i, const PoolPlan<Index>&, const Window<Index>&,
                                           const State (&states)[count]) const {
    cuda::Vector<C, count> values;
    cuda::Vector<std::int32_t, count> places;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      values[k] = states[k].value;
      places[k] = states[k].place == no_place ? -1 : states[k].place;
    }
    if (indices != nullptr) *reinterpret_cast<cuda::Vector<std::int32_t, count>*>(indices + i) = places;
    return values;
  }
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(indices) % 32 == 0; }
};

/// The largest element alone.
template <class C>
struct WindowMaximumValue {
  struct State {
    C value;

    __device__ friend State operator+(State a, State b) { return {extreme<true>(a.value, b.value)}; }
  };

  __device__ static C missing() { return -std::numeric_limits<C>::infinity(); }
  __device__ static State begin(std::int64_t) { return {missing()}; }

  template <class Index, int count>
  __device__ void take(State& state, const C (&values)[count], const Index (&)[count]) const {
#pragma unroll
    for (int j = 0; j < count; ++j) state.value = extreme<true>(state.value, values[j]);
  }
  template <class Index, int count>
  __device__ cuda::Vector<C, count> finish(std::int64_t, const PoolPlan<Index>&, const Window<Index>&, const State (&states)[count]) const {
    cuda::Vector<C, count> values;
#pragma unroll
    for (int k = 0; k < count; ++k) values[k] = states[k].value;
    return values;
  }
};

/// A window hands its gradient to the element that was chosen.
struct ArgmaxShare {
  const std::int32_t* indices;

  template <int count>
  __device__ auto load(std::int64_t i) const {
    return *reinterpret_cast<const cuda::Vector<std::int32_t, count>*>(indices + i);
  }
  template <class Index, class C, int count>
  __device__ void add(cuda::Vector<C, count>& sums, const cuda::Vector<C, count>& gradients,
                      const cuda::Vector<std::int32_t, count>& chosen, const PoolPlan<Index>&, Index, Index, Index, Index place) const {
#pragma unroll
    for (int k = 0; k < count; ++k) sums[k] += chosen[k] == place ? gradients[k] : C{0};
  }
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(indices) % 32 == 0; }
};

}  // namespace frit::ops
