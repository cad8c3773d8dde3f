#pragma once

#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/cuda/extreme.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/elementwise/scalar_math.h"
#include "frit/ops/reduction/channel_rows.cuh"
#include "frit/ops/reduction/extremum.h"

// The reductions of reduce.cuh that are operators, besides sums. NVRTC compiles this header too.

namespace frit::ops {

/// The greatest (or least) element, and how many equal it.
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

/// The greatest (or least) element alone.
template <class Order, class T>
struct ExtremeValue {
  using C = Computed<T>;
  static constexpr bool greatest = std::is_same_v<Order, MaximumOrder>;
  struct State {
    C value;

    __device__ static State identity() { return {Order::template start<C>()}; }
    __device__ static State merge(State a, State b) { return {extreme<greatest>(a.value, b.value)}; }
  };
  TensorSource<T, C> source;
  T* value;  // (results)

  __device__ State read(const C (&elements)[batch_size], const Batch& batch) const {
    State state = {elements[0]};
#pragma unroll
    for (int i = 1; i < batch_size; ++i) {
      if (batch.has(i)) state.value = extreme<greatest>(state.value, elements[i]);
    }
    return state;
  }
  __device__ void finish(State state, const Line& line) const { value[line.result] = convert<T>(state.value); }
};

/// The first of the greatest (or least) elements, and its place.
template <class Order, class T>
struct Extremum {
  T value;
  std::int64_t index;

  __device__ static Extremum identity() { return {Order::template start<T>(), std::numeric_limits<std::int64_t>::max()}; }
  __device__ static Extremum merge(const Extremum& a, const Extremum& b) {
    const bool better = replaces<Order>(b.value, a.value), equal = ties(b.value, a.value), earlier = b.index < a.index;
    const bool second = better | (equal & earlier);  // without branches
    return {second ? b.value : a.value, second ? b.index : a.index};
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

template <class T>
struct LogOfSumExp : LogSumExpOf<T, Computed<T>> {
  using C = Computed<T>;
  T* y;              // (results), or null
  C *maximum, *sum;  // (results), or null

  __device__ void finish(const LogSumExp<C>& state, const Line& line) const {
    if (y != nullptr) y[line.result] = convert<T>(state.shift_of(state.maximum) + logarithm(state.sum.value()));
    if (maximum != nullptr) maximum[line.result] = state.maximum;
    if (sum != nullptr) sum[line.result] = state.sum.value();
  }
};

}  // namespace frit::ops
