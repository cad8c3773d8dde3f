#pragma once

#include <numeric>

#include "frit/ops/cuda/elementwise.h"
#include "frit/ops/elementwise/pointwise.h"

// CUDA kernels of operators that compute each element of one output from the elements at its place.

namespace frit::ops {

/// The type that elements of type T are computed with.
template <class T>
using Computed = std::conditional_t<is_half_type<T>, float, T>;

/// Calls `body` for f64, f32, f16 and bf16.
template <class Body>
void dispatch_floating_and_halves(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f16: return body.template operator()<Half>();
    case DType::bf16: return body.template operator()<BFloat16>();
    default: return dispatch_floating(dtype, body);
  }
}

/// A functor's gradient as a functor.
template <class Function>
struct GradientOf {
  Function function;

  template <class... T>
  __device__ auto operator()(T... values) const {
    return function.gradient(values...);
  }
};

/// The kernel of an operator with `inputs` inputs.
inline Kernel elementwise_kernel(KernelFunction run, int inputs) {
  Kernel kernel{.run = std::move(run), .strided = true, .halves = true, .any_layout_outputs = {0}};
  kernel.any_layout_inputs.resize(static_cast<std::size_t>(inputs));
  std::iota(kernel.any_layout_inputs.begin(), kernel.any_layout_inputs.end(), 0);
  return kernel;
}

/// y = Function(x).
template <template <class> class Function, class A = NoAttributes>
void run_cuda_pointwise(const KernelContext& call) {
  dispatch_floating_and_halves(call.outputs[0].dtype(), [&]<class T>() {
    map_elements<T, T>(call.stream, call.outputs[0], call.inputs, functor_of<Function, A, Computed<T>>(call));
  });
}

/// The gradient of x from that of y, and from x or y.
template <template <class> class Function, class A = NoAttributes>
void run_cuda_pointwise_gradient(const KernelContext& call) {
  dispatch_floating_and_halves(call.outputs[0].dtype(), [&]<class T>() {
    const auto function = functor_of<Function, A, Computed<T>>(call);
    map_elements<T, T, T>(call.stream, call.outputs[0], call.inputs, GradientOf<Function<Computed<T>>>{function});
  });
}

/// The kernels of an operator that add_pointwise has added, and of its gradient.
template <template <class> class Function, class A = NoAttributes>
void add_cuda_pointwise(Registry& registry, const std::string& name) {
  registry.add_cuda(name, elementwise_kernel(run_cuda_pointwise<Function, A>, 1));
  registry.add_cuda(name + "_backward", elementwise_kernel(run_cuda_pointwise_gradient<Function, A>, 2));
}

}  // namespace frit::ops
