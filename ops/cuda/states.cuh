#pragma once

#include <cmath>
#include <limits>

#include "frit/core/cuda/reduce.cuh"

// Running states of reductions, and how the threads of a team merge theirs. NVRTC compiles this header too.

namespace frit::ops {

/// Elements of a line that a thread reads at once.
inline constexpr int batch_size = 8;

/// A team: the threads of a block whose numbers differ in no bits but those from `first` up to below `last`, both powers of 2.
struct TeamBits {
  int first, last;
};

/// Every thread gets the merged states of its team, in an order that does not depend on the thread. `shared` has a place for each thread of
/// the block, and may be used again at once. All threads of the block take part.
template <class State>
__device__ State merge_team(State state, TeamBits team, State* shared) {
#pragma unroll 1
  for (int mask = team.first; mask < cuda::warp_size && mask < team.last; mask *= 2) {
    state = State::merge(state, cuda::shuffle_xor(state, mask));
  }
  const int step = team.first > cuda::warp_size ? team.first : cuda::warp_size;  // within a warp, all have the same
  if (step >= team.last) return state;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  shared[thread] = state;
  __syncthreads();
  const int first = thread % step + (thread & ~(team.last - 1));
  state = shared[first];
#pragma unroll 1
  for (int other = first + step; other < first + team.last; other += step) state = State::merge(state, shared[other]);
  return state;
}

/// Pairs, pairs of pairs, ...: short chains of additions.
template <class T, int size>
__device__ T tree_sum(const T (&terms)[size]) {
  T sums[size];
#pragma unroll
  for (int i = 0; i < size; ++i) sums[i] = terms[i];
#pragma unroll
  for (int half = size / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

template <class T>
struct Sum {
  T sum;

  __device__ static Sum identity() { return {T{0}}; }
  __device__ static Sum of(T x) { return {x}; }
  __device__ static Sum merge(Sum a, Sum b) { return {a.sum + b.sum}; }
  __device__ Sum scaled(T factor) const { return {sum * factor}; }
  __device__ T value() const { return sum; }
};

/// With what rounding took from the sum (D. Knuth, The Art of Computer Programming, volume 2, 4.2.2), so that the number of terms does not
/// matter. The intrinsics keep the compiler from fusing a product into an addition.
template <>
struct Sum<float> {
  float sum, rest;

  __device__ static Sum identity() { return {0.0f, 0.0f}; }
  __device__ static Sum of(float x) { return {x, 0.0f}; }
  __device__ static Sum merge(Sum a, Sum b) {
    const float sum = __fadd_rn(a.sum, b.sum);
    const float second = __fsub_rn(sum, a.sum);
    const float lost = __fadd_rn(__fsub_rn(a.sum, __fsub_rn(sum, second)), __fsub_rn(b.sum, second));
    return {sum, __fadd_rn(__fadd_rn(a.rest, b.rest), lost)};
  }
  __device__ Sum scaled(float factor) const { return {__fmul_rn(sum, factor), __fmul_rn(rest, factor)}; }
  __device__ float value() const { return std::isfinite(sum) ? sum + rest : sum; }
};

/// The greatest element (-inf of nothing, never NaN) and the sum of exp(x - maximum). An infinite maximum is not subtracted, so that a line
/// of -inf has the sum 0, one with +inf the sum +inf, and one with NaN the sum NaN.
template <class T>
struct LogSumExp {
  T maximum;
  Sum<T> sum;

  __device__ static T shift_of(T maximum) { return std::isinf(maximum) ? T{0} : maximum; }
  __device__ static LogSumExp identity() { return {-std::numeric_limits<T>::infinity(), Sum<T>::identity()}; }
  __device__ static LogSumExp merge(LogSumExp a, LogSumExp b) {
    const T maximum = b.maximum > a.maximum ? b.maximum : a.maximum;
    return {maximum, Sum<T>::merge(a.sum_for(maximum), b.sum_for(maximum))};
  }

 private:
  __device__ Sum<T> sum_for(T greater) const { return maximum == greater ? sum : sum.scaled(std::exp(maximum - greater)); }
};

}  // namespace frit::ops
