#pragma once

#include "frit/core/convert.h"
#include "frit/ops/cuda/lines.cuh"

// Reductions to running states that several operators share: sums, and sums of exponentials. NVRTC compiles this header too.

namespace frit::ops {

/// What elements of type T are summed as. Integers wrap around.
template <class T>
using SumTerm = std::conditional_t<std::is_integral_v<T>, std::uint64_t, std::conditional_t<std::is_same_v<T, double>, double, float>>;

/// The sum of a source's terms over the elements of a line.
template <class Source>
struct SumOf {
  using Term = TermOf<Source>;
  using State = Sum<Term>;
  Source source;

  __device__ static Term missing() { return Term{0}; }
  __device__ State read(const Term (&terms)[batch_size], const Batch&) const { return State::of(tree_sum(terms)); }
};

/// y = sum / divisor.
template <class T, class Result = T>
struct DividedSum : SumOf<TensorSource<T, SumTerm<T>>> {
  Result* y;  // (results)
  SumTerm<T> divisor;

  DividedSum(const T* x, Result* results, std::int64_t count)
      : SumOf<TensorSource<T, SumTerm<T>>>{{x}}, y(results), divisor(static_cast<SumTerm<T>>(count)) {}
  __device__ void finish(Sum<SumTerm<T>> state, const Line& line) const { y[line.result] = convert<Result>(state.value() / divisor); }
};

/// The state of the elements of a line of x, computed in C.
template <class T, class C = T>
struct LogSumExpOf {
  using State = LogSumExp<C>;
  TensorSource<T, C> source;

  __device__ static C missing() { return -std::numeric_limits<C>::infinity(); }
  __device__ State read(C (&terms)[batch_size], const Batch&) const {
    C maximum = missing();
#pragma unroll
    for (int i = 0; i < batch_size; ++i) maximum = terms[i] > maximum ? terms[i] : maximum;
    const C shift = State::shift_of(maximum);
#pragma unroll
    for (int i = 0; i < batch_size; ++i) terms[i] = std::exp(terms[i] - shift);
    return {maximum, Sum<C>::of(tree_sum(terms))};
  }
};

}  // namespace frit::ops
