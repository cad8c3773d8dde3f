#pragma once

#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/functions.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// By the functor of an entry of functions.h, element by element: for what the compiler makes vector code of by itself, or the library has.
/// Input types but the last may be u8.
template <class Entry>
ElementFunction function_of_elements(const KernelContext& call) {
  const auto make = []<class T>() {
    const auto function = []<class Out, class... In>(std::type_identity<Out(In...)>) {
      return element_function<Out, In...>(typename Entry::template Functor<T>{});
    };
    return function(std::type_identity<typename Entry::template Signature<T>>());
  };
  const DType dtype = call.inputs.back().dtype();
  if constexpr (Entry::takes_integers) {
    return dispatch_arithmetic(dtype, make);
  } else {
    return dispatch_floating(dtype, make);
  }
}

/// By a functor of floating numbers, in vectors.
template <template <class> class Functor, std::size_t operands = 1, class A = NoAttributes>
ElementFunction function_of_vectors(const KernelContext& call) {
  return dispatch_floating(call.outputs[0].dtype(), [&]<class T>() {
    return vector_function<T, operands>(make_functor<Functor<InVectors<T>>, A>(call.attributes));
  });
}

/// For Operator::samples: a few shapes of one input, with each of `attributes`.
std::function<std::vector<Sample>()> pointwise_samples(Fill fill, std::vector<Attributes> attributes = {NoAttributes{}});

/// How a pointwise operator and its gradient are computed.
struct PointwiseKernels {
  ElementRule forward, backward;
  bool gradient_from_output;  ///< `backward` takes the output; otherwise the input
  bool piecewise_linear;      ///< the gradient is linear in that of the output, and does not change with the input
};

/// The entry of "<name>_backward", which gives the gradient of the operator `entry`.
Operator pointwise_backward(const Operator& entry, const PointwiseKernels& kernels);
/// `entry`, which has a name, a summary, samples and perhaps a check of its attributes in `infer`, with all that is missing.
Operator pointwise_forward(Operator entry, const PointwiseKernels& kernels);

/// Adds a pointwise operator, y = Function(x), and its gradient, with attributes A.
template <template <class> class Function, class A = NoAttributes>
void add_pointwise(Registry& registry, Operator entry) {
  const PointwiseKernels kernels{function_of_vectors<Function, 1, A>, function_of_vectors<Gradient<Function, A>::template Of, 2, A>,
                                 Function<double>::gradient_from_output, Function<double>::piecewise_linear};
  registry.add<A>(pointwise_backward(entry, kernels));
  registry.add<A>(pointwise_forward(std::move(entry), kernels));
}

}  // namespace frit::ops
