#pragma once

#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "frit/core/strided_loop.h"
#include "frit/core/tensor.h"

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

// One operand of a run: its elements side by side, one element repeated, or elements at any distance.
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

template <class T>
struct StridedOperand {
  const T* data;
  std::int64_t step;
  T operator[](std::int64_t i) const { return data[i * step]; }
};

/// Not inlined: a loop vectorises best in a function of its own.
template <class Out, class Function, class... Operands>
[[gnu::noinline]] void map_run(Out* output, std::int64_t count, Function function, Operands... operands) {
  FRIT_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < count; ++i) output[i] = function(operands[i]...);
}

/// Calls body(operand...) with each operand of step 0 or 1 as what it is: every mixture has a loop of its own, which the compiler
/// vectorises.
template <class Body>
void with_plain_operands(const Body& body) {
  body();
}

template <class Body, class T, class... Rest>
void with_plain_operands(const Body& body, StridedOperand<T> first, Rest... rest) {
  const auto continue_with = [&](auto operand) { with_plain_operands([&](auto... others) { body(operand, others...); }, rest...); };
  if (first.step == 0) {
    continue_with(RepeatedOperand<T>{*first.data});
  } else {
    continue_with(DenseOperand<T>{first.data});
  }
}

template <class Out, class Function, class... In>
void map_operands(Out* output, std::int64_t count, const Function& function, StridedOperand<In>... operands) {
  if (((operands.step == 0 || operands.step == 1) && ...)) {
    with_plain_operands([&](auto... plain) { map_run(output, count, function, plain...); }, operands...);
  } else {
    map_run(output, count, function, operands...);
  }
}

template <class Out, class... In, class Function, std::size_t... I>
void map_elements(const Tensor& output, std::span<const Tensor> inputs, const Function& function, std::index_sequence<I...>) {
  FRIT_CHECK(output.is_contiguous() && inputs.size() >= sizeof...(In));
  const std::array<Tensor, sizeof...(In)> operands = {inputs[I].expand(output.shape())...};
  Out* const out = output.data<Out>();
  const std::tuple<const In*...> data = {operands[I].template data<In>()...};
  strided_loop<1 + sizeof...(In)>(
      output.shape(), {output.strides(), operands[I].strides()...}, [&](const auto& offsets, const auto& steps, std::int64_t count) {
        map_operands<Out>(out + offsets[0], count, function, StridedOperand<In>{std::get<I>(data) + offsets[I + 1], steps[I + 1]}...);
      });
}

}  // namespace detail

/// output[i] = function(inputs[0][i], inputs[1][i], ...), in parallel: `map_elements<Out, In...>(output, inputs, function)` with the C++
/// types of the elements. The output is contiguous and may lie on an input; the inputs have any strides and broadcast to the output's
/// shape. Inputs beyond In... are not looked at. The functor is copied to each run of elements.
template <class Out, class... In, class Function>
void map_elements(const Tensor& output, std::span<const Tensor> inputs, const Function& function) {
  detail::map_elements<Out, In...>(output, inputs, function, std::index_sequence_for<In...>{});
}

}  // namespace frit::ops

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
