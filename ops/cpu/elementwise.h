#pragma once

#include <array>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "frit/core/strided_copy.h"
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

/// Either of them.
template <class T>
struct PlainOperand {
  const T* data;
  bool repeated;
};

/// Not inlined: a loop vectorises best in a function of its own.
template <class Out, class Function, class... Operands>
[[gnu::noinline]] void map_run(Out* output, std::int64_t count, Function function, Operands... operands) {
  FRIT_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < count; ++i) output[i] = function(operands[i]...);
}

/// Calls body(operand...) with each operand as what it is: every mixture has a loop of its own, which the compiler vectorises.
template <class Body>
void with_plain_operands(const Body& body) {
  body();
}

template <class Body, class T, class... Rest>
void with_plain_operands(const Body& body, PlainOperand<T> first, Rest... rest) {
  const auto continue_with = [&](auto operand) { with_plain_operands([&](auto... others) { body(operand, others...); }, rest...); };
  if (first.repeated) {
    continue_with(RepeatedOperand<T>{*first.data});
  } else {
    continue_with(DenseOperand<T>{first.data});
  }
}

/// Elements that are gathered at a time from operands that lie in another order than the output.
inline constexpr std::int64_t gathered_elements = 2048;

template <class T>
struct GatheredElements {
  T data[gathered_elements];
  GatheredElements() {}  // leaves them as they are
};

/// An operand in the output's order.
template <class T>
struct OrderedOperand {
  const T* data;
  bool repeated, dense;
  std::optional<StridedElements> elements;  ///< where it is neither

  OrderedOperand(const Tensor& input, const Shape& shape, Layout order) : data(input.data<T>()), repeated(input.elements() == 1) {
    dense = !repeated && input.shape() == shape && input.is_contiguous(order);
    if (plain()) return;
    elements.emplace(input.expand(shape), order);
    dense = elements->dense(), repeated = elements->repeated();
  }
  bool plain() const { return dense || repeated; }
  PlainOperand<T> read(std::int64_t begin, std::int64_t end, T* memory) const {
    if (plain()) return {repeated ? data : data + begin, repeated};
    elements->gather(data, begin, end, memory);
    return {memory, false};
  }
};

/// Where the output lies in another order than the one that is gone through, its elements are computed in memory and written from there.
template <class Out, class... In, class Function, std::size_t... I>
void map_elements(const Tensor& output, std::span<const Tensor> inputs, const Function& function, std::index_sequence<I...>) {
  FRIT_CHECK(output.is_contiguous(output.layout()) && inputs.size() >= sizeof...(In));
  const Layout order = (has_inner_channels(output) || ... || has_inner_channels(inputs[I])) ? Layout::channels_last : Layout::contiguous;
  const std::tuple<OrderedOperand<In>...> operands{OrderedOperand<In>(inputs[I], output.shape(), order)...};
  const OrderedOperand<Out> target(output, output.shape(), order);
  const bool plain = (target.plain() && ... && std::get<I>(operands).plain());
  Out* const out = output.data<Out>();
  parallel_for(output.elements(), elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    std::tuple<GatheredElements<Out>, GatheredElements<In>...> memory;
    const std::int64_t step = plain ? end - begin : gathered_elements;
    for (std::int64_t first = begin; first < end; first += step) {
      const std::int64_t last = std::min(first + step, end);
      Out* const results = target.plain() ? out + first : std::get<0>(memory).data;
      const auto run = [&](auto... operand) { map_run(results, last - first, function, operand...); };
      with_plain_operands(run, std::get<I>(operands).read(first, last, std::get<I + 1>(memory).data)...);
      if (!target.plain()) target.elements->scatter(out, first, last, results);
    }
  });
}

}  // namespace detail

/// output[i] = function(inputs[0][i], inputs[1][i], ...), in parallel: `map_elements<Out, In...>(output, inputs, function)` with the C++
/// types of the elements. The output is dense in either layout and may lie on an input; the inputs have any strides and broadcast to the
/// output's shape. Inputs beyond In... are not looked at. The functor is copied to each run of elements.
template <class Out, class... In, class Function>
void map_elements(const Tensor& output, std::span<const Tensor> inputs, const Function& function) {
  detail::map_elements<Out, In...>(output, inputs, function, std::index_sequence_for<In...>{});
}

}  // namespace frit::ops

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
