#pragma once

#include <algorithm>
#include <limits>

#include "frit/ops/cpu/converted_vectors.h"
#include "frit/ops/cpu/simd_math.h"

namespace frit::ops {

// What reductions compute of elements that lie side by side and are one result.

/// combine(...(start, term(0)), term(1)) ..., several at a time in vectors of numbers A: of a type To, A or such a vector,
/// term.template operator()<To>(i) is the terms from the i-th on.
template <class A, class Term, class Combine>
A reduce_terms(std::int64_t count, A start, const Term& term, const Combine& combine) {
  using V = simd::Vector<A>;
  constexpr int lanes = simd::lanes<A>;
  A result = start;
  std::int64_t i = 0;
  if (count >= lanes) {
    V even = start - V{}, odd = even;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      even = combine(even, term.template operator()<V>(i));
      odd = combine(odd, term.template operator()<V>(i + lanes));
    }
    if (i + lanes <= count) even = combine(even, term.template operator()<V>(i)), i += lanes;
    even = combine(even, odd);
    for (int lane = 0; lane < lanes; ++lane) result = combine(result, static_cast<A>(even[lane]));
  }
  for (; i < count; ++i) result = combine(result, term.template operator()<A>(i));
  return result;
}

/// Of the elements of x.
template <class A, class T, class Combine>
A reduce_line(const T* x, std::int64_t count, A start, const Combine& combine) {
  return reduce_terms(
      count, start, [x]<class To>(std::int64_t i) { return load_as<To>(x + i); }, combine);
}

template <class A, class T>
A sum_of_line(const T* x, std::int64_t count) {
  return reduce_line<A>(x, count, A{0}, [](auto a, auto b) { return a + b; });
}

/// -inf at least, never NaN.
template <class T>
T maximum_of_line(const T* x, std::int64_t count) {
  return reduce_line<T>(x, count, -std::numeric_limits<T>::infinity(), [](auto a, auto b) { return b > a ? b : a; });
}

/// exp(x - shift), see simd::exp.
template <class T>
[[gnu::noinline]] void exponentials(const T* x, const T* shift, std::int64_t count, T* results) {
  constexpr int lanes = simd::lanes<T>, vectors = 4, step = vectors * lanes;
  const auto compute = [](const T* of, const T* less, T* to) {
    simd::Vector<T> terms[vectors];
    for (int v = 0; v < vectors; ++v) terms[v] = simd::load(of + v * lanes) - simd::load(less + v * lanes);
    simd::exp<T>(terms);
    for (int v = 0; v < vectors; ++v) simd::store(to + v * lanes, terms[v]);
  };
  std::int64_t i = 0;
  for (; i + step <= count; i += step) compute(x + i, shift + i, results + i);
  if (i == count) return;
  T rest[2][step] = {};
  std::copy_n(x + i, count - i, rest[0]);
  std::copy_n(shift + i, count - i, rest[1]);
  compute(rest[0], rest[1], rest[0]);
  std::copy_n(rest[0], count - i, results + i);
}

}  // namespace frit::ops
