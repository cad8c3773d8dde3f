// A cast is a copy between dtypes.

#include "frit/ops/elementwise/pointwise.cuh"

FRIT_CUDA_KERNELS(cast) {
  Kernel kernel = elementwise_kernel([](const KernelContext& call) { copy(call.outputs[0], call.inputs[0]); }, 1);
  kernel.functor = functor_data<std::remove_const_t<decltype(cast_function)>>;
  registry.add_cuda("cast", std::move(kernel));
}
