#pragma once

#include "frit/core/convert.h"
#include "frit/ops/cuda/reduce.cuh"

// Running states that several reductions share: sums, and sums of exponentials.

namespace frit::ops {

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
template <class T, class Result>
struct DividedSum : SumOf<TensorSource<T, SumTerm<T>>> {
  Result* y;  // (results)
  SumTerm<T> divisor;

  DividedSum(const T* x, Result* results, std::int64_t count)
      : SumOf<TensorSource<T, SumTerm<T>>>{{x}}, y(results), divisor(static_cast<SumTerm<T>>(count)) {}
  __device__ void finish(Sum<SumTerm<T>> state, const Line& line) const { y[line.result] = convert<Result>(state.value() / divisor); }
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
