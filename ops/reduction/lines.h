#pragma once

#include <limits>

#include "frit/ops/cpu/vector_math.h"
#include "frit/ops/reduction/reduce.h"

namespace frit::ops {

// What reductions compute of elements that lie side by side and are one result.

inline constexpr int line_lanes = 16;

/// take(state, i) for all i of a line, the states of neighbours being neighbours, then combine(a, b), which adds state b to state a. State
/// 0 is the result.
template <class State, class Take, class Combine>
State reduce_line(std::int64_t count, State start, const Take& take, const Combine& combine) {
  State lanes[line_lanes];
  std::fill_n(lanes, line_lanes, start);
  std::int64_t i = 0;
  for (; i + line_lanes <= count; i += line_lanes) {
    for (int lane = 0; lane < line_lanes; ++lane) lanes[lane] = take(lanes[lane], i + lane);
  }
  for (int lane = 0; i + lane < count; ++lane) lanes[lane] = take(lanes[lane], i + lane);
  fold_lanes<line_lanes>([&](int a, int b) { lanes[a] = combine(lanes[a], lanes[b]); });
  return lanes[0];
}

template <class Accumulator, class T>
Accumulator sum_of_line(const T* x, std::int64_t count) {
  return reduce_line(
      count, Accumulator{0}, [x](Accumulator sum, std::int64_t i) { return sum + static_cast<Accumulator>(x[i]); },
      [](Accumulator a, Accumulator b) { return a + b; });
}

/// -inf at least, never NaN.
template <class T>
T maximum_of_line(const T* x, std::int64_t count) {
  const auto greater = [](T a, T b) { return b > a ? b : a; };
  return reduce_line(
      count, -std::numeric_limits<T>::infinity(), [=](T best, std::int64_t i) { return greater(best, x[i]); }, greater);
}

/// exp(x - shift). A function of its own, in which the loop becomes vector code.
template <class T>
[[gnu::noinline, gnu::flatten]] void exponentials(const T* x, const T* shift, std::int64_t count, T* results) {
  for (std::int64_t i = 0; i < count; ++i) results[i] = vector_exp(x[i] - shift[i]);
}

}  // namespace frit::ops
