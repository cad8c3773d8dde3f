// Arithmetic of two arguments, the shares of minimum and maximum in their gradients, and negation.

#include "frit/ops/cuda/pointwise.h"
#include "frit/ops/elementwise/arithmetic_functors.h"

namespace frit::ops {
namespace {

template <template <class> class Function>
void run_cuda_arithmetic(const KernelContext& call) {
  dispatch_all(call.outputs[0].dtype(),
               [&]<class T>() { map_elements<T, T, T>(call.stream, call.outputs[0], call.inputs, Function<Computed<T>>{}); });
}

template <template <class> class Function>
void run_cuda_floating(const KernelContext& call) {
  dispatch_floating_and_halves(call.outputs[0].dtype(), [&]<class T>() {
    map_elements<T, T, T>(call.stream, call.outputs[0], call.inputs, Function<Computed<T>>{});
  });
}

template <template <class> class Function>
void run_cuda_share(const KernelContext& call) {
  dispatch_floating_and_halves(call.outputs[0].dtype(), [&]<class T>() {
    map_elements<T, T, T, T>(call.stream, call.outputs[0], call.inputs, GradientOf<Function<Computed<T>>>{});
  });
}

void run_cuda_negate(const KernelContext& call) {
  dispatch_all(call.outputs[0].dtype(),
               [&]<class T>() { map_elements<T, T>(call.stream, call.outputs[0], call.inputs, Negate<Computed<T>>{}); });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(arithmetic) {
  registry.add_cuda("add", elementwise_kernel(run_cuda_arithmetic<Add>, 2));
  registry.add_cuda("subtract", elementwise_kernel(run_cuda_arithmetic<Subtract>, 2));
  registry.add_cuda("multiply", elementwise_kernel(run_cuda_arithmetic<Multiply>, 2));
  registry.add_cuda("minimum", elementwise_kernel(run_cuda_arithmetic<Minimum>, 2));
  registry.add_cuda("maximum", elementwise_kernel(run_cuda_arithmetic<Maximum>, 2));
  registry.add_cuda("divide", elementwise_kernel(run_cuda_floating<Divide>, 2));
  registry.add_cuda("power", elementwise_kernel(run_cuda_floating<Power>, 2));
  registry.add_cuda("minimum_backward", elementwise_kernel(run_cuda_share<Minimum>, 3));
  registry.add_cuda("maximum_backward", elementwise_kernel(run_cuda_share<Maximum>, 3));
  registry.add_cuda("negate", elementwise_kernel(run_cuda_negate, 1));
}
