#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "frit/core/strided_copy.h"
#include "frit/core/strided_map.h"
#include "frit/core/tensor.h"
#include "frit/ops/cpu/lanes.h"

/// Stands before a loop whose iterations are independent of each other even where the output lies on an input, element on element, as it
/// does in place: the compiler cannot know that, and would fall back to one element at a time.
#if defined(__clang__)
#define FRIT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // a functor that calls into the math library stays scalar
#elif defined(__GNUC__)
#define FRIT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#else
#define FRIT_INDEPENDENT_ITERATIONS
#endif

namespace frit::ops {
namespace detail {

// One operand of a run: its elements side by side, or one element repeated.
template <class T>
struct DenseOperand {
  const T* data;
  T operator[](std::int64_t i) const { return data[i]; }
};

template <class T>
struct RepeatedOperand {
  T value;
  T operator[](std::int64_t) const { return value; }
};

/// Not inlined: a loop vectorises best in a function of its own, with all that it calls in it. A functor may have a form for usual
/// operands alone, `of_usual`, that vectorises where the functor itself does not, and gives the same.
template <class Out, class Function, class... Operands>
[[gnu::noinline, gnu::flatten]] void map_run(Out* output, std::int64_t count, Function function, Operands... operands) {
  if constexpr (requires { function.of_usual(operands[0]...); }) {
    constexpr std::int64_t most = 1024;  // which stay in the cache
    for (std::int64_t begin = 0; begin < count; begin += most) {
      const std::int64_t end = std::min(begin + most, count);
      std::int32_t unusual = 0;
      for (std::int64_t i = begin; i < end; ++i) unusual |= static_cast<std::int32_t>(!function.is_usual(operands[i]...));
      if (unusual != 0) {
        for (std::int64_t i = begin; i < end; ++i) output[i] = function(operands[i]...);
        continue;
      }
      FRIT_INDEPENDENT_ITERATIONS
      for (std::int64_t i = begin; i < end; ++i) output[i] = function.of_usual(operands[i]...);
    }
  } else {
    FRIT_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < count; ++i) output[i] = function(operands[i]...);
  }
}

/// map_run for operands of these types.
template <class Out, class Function, class... In, std::size_t... I>
void map_rows(const void* function, void* output, const void* const* inputs, const MapRows& rows, std::index_sequence<I...>) {
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    map_run(static_cast<Out*>(output) + row * rows.output_step, rows.length, *static_cast<const Function*>(function),
            DenseOperand<In>{static_cast<const In*>(inputs[I]) + row * rows.steps[I]}...);
  }
}

/// The same for a functor of vectors, a few vectors at a time, of whatever rows; what a row has left over is filled up to one.
template <class Function, std::size_t... I>
[[gnu::noinline, gnu::flatten]] void map_lanes(const void* function, void* output, const void* const* inputs, const MapRows& rows,
                                               std::index_sequence<I...>) {
  constexpr std::int64_t width = simd::lanes<float>, together = simd::lane_vectors;
  const Function apply = *static_cast<const Function*>(function);
  float* const to = static_cast<float*>(output);
  const float* const from[] = {static_cast<const float*>(inputs[I])...};
  const std::int64_t length = rows.length / width * width;
  std::int64_t row = 0, column = 0;
  for (std::int64_t left = rows.rows * (length / width); left > 0; left -= together) {
    std::int64_t row_of[together], column_of[together];
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < together; ++v) {  // past the end the last one again
      row_of[v] = row, column_of[v] = column;
      if (v + 1 >= left) continue;
      column += width;
      if (column == length) column = 0, ++row;
    }
    const auto read = [&](std::size_t operand) {
      simd::Lanes x;
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < together; ++v) {
        x.values[v] = simd::load(from[operand] + row_of[v] * rows.steps[operand] + column_of[v]);
      }
      return x;
    };
    const simd::Lanes result = apply(read(I)...);
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < together; ++v) simd::store(to + row_of[v] * rows.output_step + column_of[v], result.values[v]);
  }
  const std::int64_t rest = rows.length - length;
  for (row = 0; rest > 0 && row < rows.rows; ++row) {
    float values[sizeof...(I)][width] = {}, results[width];
    for (std::size_t k = 0; k < sizeof...(I); ++k) std::copy_n(from[k] + row * rows.steps[k] + length, rest, values[k]);
    const auto read = [&](std::size_t operand) {
      simd::Lanes x;
      for (simd::Vector<float>& vector : x.values) vector = simd::load(values[operand]);
      return x;
    };
    simd::store(results, apply(read(I)...).values[0]);
    std::copy_n(results, rest, to + row * rows.output_step + length);
  }
}

}  // namespace detail

/// output[i] = function(operands[0][i], operands[1][i], ...) of elements that have the C++ types Out, In... The functor is copied to each
/// run of elements. Operands beyond In... are not looked at.
template <class Out, class... In, class Function>
ElementFunction element_function(const Function& function) {
  static_assert(sizeof...(In) <= most_map_operands);
  const MapRun run = [](const void* state, void* output, const void* const* inputs, const MapRows& rows) {
    detail::map_rows<Out, Function, In...>(state, output, inputs, rows, std::index_sequence_for<In...>());
  };
  return {run, std::make_shared<const Function>(function)};
}

/// What functors compute elements of type T with: of float32 with vectors.
template <class T>
using InVectors = std::conditional_t<std::is_same_v<T, float>, simd::Lanes, T>;

/// The same for so many operands of the output's type, where the function takes and gives InVectors<T>.
template <class T, std::size_t operands, class Function>
ElementFunction vector_function(const Function& function) {
  const MapRun run = [](const void* state, void* output, const void* const* inputs, const MapRows& rows) {
    [&]<std::size_t... I>(std::index_sequence<I...> indices) {
      if constexpr (std::is_same_v<T, float>) {
        detail::map_lanes<Function>(state, output, inputs, rows, indices);
      } else {
        detail::map_rows<T, Function, std::enable_if_t<(I < operands), T>...>(state, output, inputs, rows, indices);
      }
    }
    (std::make_index_sequence<operands>());
  };
  return {run, std::make_shared<const Function>(function)};
}

}  // namespace frit::ops

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
