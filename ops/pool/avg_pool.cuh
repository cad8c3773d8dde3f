#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/pool/channel_windows.cuh"

namespace frit::ops {

// Average pooling's part in the kernels of pooling. NVRTC compiles this header too.

/// How many elements a window's mean counts.
struct WindowSize {
  bool count_padding;

  template <class C, class Index>
  __device__ C operator()(const PoolPlan<Index>& pool, Index depth, Index height, Index width) const {
    // Exact up to 2^24, in float32, and no sum is more so.
    return static_cast<C>(extent(pool.depth, depth)) * static_cast<C>(extent(pool.height, height)) *
           static_cast<C>(extent(pool.width, width));
  }

 private:
  template <class Index>
  __device__ Index extent(const PoolAxis<Index>& axis, Index o) const {
    const Index begin = axis.window_begin(o), padding = count_padding ? axis.padding : 0;
    return min(begin + axis.kernel, axis.image + padding) - max(begin, -padding);
  }
};

template <class C>
struct WindowMean {
  struct State {
    double total;

    __device__ friend State operator+(const State& a, const State& b) { return {a.total + b.total}; }
  };

  WindowSize size;

  __device__ static C missing() { return 0; }
  __device__ static State begin(std::int64_t) { return {0}; }

  /// Few elements are summed in their own type, the sums in double.
  template <class Index, int count>
  __device__ void take(State& state, const C (&values)[count], const Index (&)[count]) const {
    C sum = 0;
#pragma unroll
    for (int j = 0; j < count; ++j) sum += values[j];
    state.total += static_cast<double>(sum);
  }
  template <class Index, int count>
  __device__ cuda::Vector<C, count> finish(std::int64_t, const PoolPlan<Index>& pool, const Window<Index>& window,
                                           const State (&states)[count]) const {
    const C elements = size.operator()<C>(pool, window.depth, window.height, window.width);
    cuda::Vector<C, count> means;
#pragma unroll
    for (int k = 0; k < count; ++k) means[k] = static_cast<C>(states[k].total) / elements;
    return means;
  }
  static bool aligned() { return true; }
};

/// A window hands an equal share of its gradient to every element.
struct EqualShare {
  WindowSize size;

  struct Nothing {};
  template <int count>
  __device__ Nothing load(std::int64_t) const {
    return {};
  }
  template <class Index, class C, int count>
  __device__ void add(cuda::Vector<C, count>& sums, const cuda::Vector<C, count>& gradients, Nothing, const PoolPlan<Index>& pool,
                      Index depth, Index height, Index width, Index) const {
    const auto elements = size.operator()<C>(pool, depth, height, width);
#pragma unroll
    for (int k = 0; k < count; ++k) sums[k] += Divide<C>{}(gradients[k], elements);
  }
  static bool aligned() { return true; }
};

}  // namespace frit::ops
