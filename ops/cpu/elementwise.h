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

/// map_run for operands of these types that lie side by side.
template <class Out, class Function, class... In, std::size_t... I>
void map_dense(const void* function, void* output, const void* const* inputs, std::int64_t count, std::index_sequence<I...>) {
  map_run(static_cast<Out*>(output), count, *static_cast<const Function*>(function),
          DenseOperand<In>{static_cast<const In*>(inputs[I])}...);
}

/// The same for a functor of vectors. What is left at the end is filled up to one.
template <class Function, std::size_t... I>
[[gnu::noinline, gnu::flatten]] void map_lanes(const void* function, void* output, const void* const* inputs, std::int64_t count,
                                               std::index_sequence<I...>) {
  constexpr std::int64_t lanes = simd::lane_vectors * simd::lanes<float>;
  const auto read = [](const float* from) {
    simd::Lanes x;
#pragma GCC unroll 4
    for (int v = 0; v < simd::lane_vectors; ++v) x.values[v] = simd::load(from + v * simd::lanes<float>);
    return x;
  };
  const auto write = [](const simd::Lanes& x, float* to) {
#pragma GCC unroll 4
    for (int v = 0; v < simd::lane_vectors; ++v) simd::store(to + v * simd::lanes<float>, x.values[v]);
  };
  const Function apply = *static_cast<const Function*>(function);
  float* const to = static_cast<float*>(output);
  const float* const from[] = {static_cast<const float*>(inputs[I])...};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) write(apply(read(from[I] + i)...), to + i);
  if (i == count) return;
  float rest[sizeof...(I)][lanes] = {}, results[lanes];
  for (std::size_t k = 0; k < sizeof...(I); ++k) std::copy(from[k] + i, from[k] + count, rest[k]);
  write(apply(read(rest[I])...), results);
  std::copy_n(results, count - i, to + i);
}

template <class... In, std::size_t... I>
void require_types(std::span<const Tensor> inputs, std::index_sequence<I...>) {
  (static_cast<void>(inputs[I].data<In>()), ...);
}

}  // namespace detail

/// output[i] = function(inputs[0][i], inputs[1][i], ...), in parallel: `map_elements<Out, In...>(output, inputs, function)` with the C++
/// types of the elements. The output is dense in either layout and may lie on an input; the inputs have any strides and broadcast to the
/// output's shape. Inputs beyond In... are not looked at. The functor is copied to each run of elements.
template <class Out, class... In, class Function>
void map_elements(const Tensor& output, std::span<const Tensor> inputs, const Function& function) {
  constexpr std::size_t operands = sizeof...(In);
  static_assert(operands <= most_map_operands);
  FRIT_CHECK(output.is_contiguous(output.layout()) && inputs.size() >= operands);
  static_cast<void>(output.data<Out>());
  detail::require_types<In...>(inputs, std::index_sequence_for<In...>{});
  const MapRun run = [](const void* self, void* results, const void* const* data, std::int64_t count) {
    detail::map_dense<Out, Function, In...>(self, results, data, count, std::index_sequence_for<In...>{});
  };
  strided_map(output, inputs.first(operands), run, &function);
}

/// What functors compute elements of type T with: of float32 with vectors.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, float>, simd::Lanes, T>;

/// output[i] = function(inputs[0][i], ...) for so many inputs of the output's type T, where the function takes Computed<T>.
template <class T, std::size_t operands, class Function>
void map_computed(const Tensor& output, std::span<const Tensor> inputs, const Function& function) {
  [&]<std::size_t... I>(std::index_sequence<I...> indices) {
    const auto type_of = [](std::size_t) -> T { return {}; };
    if constexpr (std::is_same_v<T, float>) {
      FRIT_CHECK(output.is_contiguous(output.layout()));
      detail::require_types<T, decltype(type_of(I))...>(std::array{output, inputs[I]...}, std::make_index_sequence<operands + 1>());
      const MapRun run = [](const void* self, void* results, const void* const* data, std::int64_t count) {
        detail::map_lanes<Function>(self, results, data, count, std::index_sequence<I...>());
      };
      strided_map(output, inputs.first(operands), run, &function);
    } else {
      map_elements<T, decltype(type_of(I))...>(output, inputs, function);
    }
    static_cast<void>(indices);
  }
  (std::make_index_sequence<operands>());
}

}  // namespace frit::ops

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
