#pragma once

#include <cstring>
#include <type_traits>

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/elementwise/compiled_program.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/functions.h"
#include "frit/ops/operator/registry.h"

// CUDA kernels of operators that compute each element of one output from the elements at its place.

namespace frit::ops {

/// Where Entry stands among the elementwise functions.
template <class Entry, class... Entries>
constexpr std::uint8_t number_of(std::type_identity<std::tuple<Entries...>>) {
  static_assert((std::is_same_v<Entry, Entries> || ...) && sizeof...(Entries) <= UINT8_MAX);
  std::uint8_t number = 0;
  (void)((std::is_same_v<Entry, Entries> || (++number, false)) || ...);
  return number;
}

/// For Kernel::functor.
template <class Entry>
FunctorData functor_data(const Attributes& attributes, bool wide) {
  FunctorData data{number_of<Entry>(std::type_identity<ElementwiseFunctions>{}), {}};
  const auto put = [&]<class T>() {
    using Functor = typename Entry::template Functor<T>;
    static_assert(std::is_trivially_copyable_v<Functor> && sizeof(Functor) <= sizeof data.state);
    const auto functor = make_functor<Functor, typename Entry::Attributes>(attributes);
    std::memcpy(data.state.data(), &functor, sizeof functor);
  };
  wide ? put.template operator()<double>() : put.template operator()<float>();
  return data;
}

template <class Signature>
struct Mapping;

template <class Out, class... In>
struct Mapping<Out(In...)> {
  static constexpr int inputs = sizeof...(In);
  /// The last one that is no condition or mask.
  static constexpr int of_data = [] {
    int input = 0, found = 0;
    ((std::is_same_v<In, std::uint8_t> ? found : found = input, ++input), ...);
    return found;
  }();

  template <class Functor>
  static void run(const KernelContext& call, const Functor& functor) {
    map_elements<Out, In...>(call.stream, call.outputs[0], call.inputs, functor);
  }
};

/// Inputs of data have the dtype that the functor computes with.
template <class Entry>
void run_cuda_elementwise(const KernelContext& call) {
  if (run_compiled(call)) return;
  const auto run = [&]<class T>() {
    using Functor = typename Entry::template Functor<Computed<T>>;
    Mapping<typename Entry::template Signature<T>>::run(call, make_functor<Functor, typename Entry::Attributes>(call.attributes));
  };
  const DType dtype = call.inputs[Mapping<typename Entry::template Signature<float>>::of_data].dtype();
  if constexpr (Entry::takes_integers) {
    dispatch_all(dtype, run);
  } else {
    dispatch_floating_and_halves(dtype, run);
  }
}

template <class Entry>
void add_cuda_function(Registry& registry, const Entry& entry) {
  constexpr int inputs = Mapping<typename Entry::template Signature<float>>::inputs;
  Kernel kernel = map_kernel(run_cuda_elementwise<Entry>, inputs, /*halves=*/true);
  kernel.functor = functor_data<Entry>;
  kernel.takes_parts = takes_parts_compiled;
  registry.add_cuda(std::string(entry.name) + entry.suffix, std::move(kernel));
}

/// The kernels of a list of elementwise operators.
template <class... Entries>
void add_cuda_functions(Registry& registry, const Functions<Entries...>& entries) {
  (add_cuda_function(registry, static_cast<const Entries&>(entries)), ...);
}

}  // namespace frit::ops
