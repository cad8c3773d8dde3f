// Functions of one argument, and the gradient of abs.

#include "frit/ops/cuda/pointwise.h"
#include "frit/ops/elementwise/unary_functors.h"

FRIT_CUDA_KERNELS(unary) {
  add_cuda_pointwise<Abs>(registry, "abs");
  registry.add_cuda("exp", elementwise_kernel(run_cuda_pointwise<Exp>, 1));
  registry.add_cuda("log", elementwise_kernel(run_cuda_pointwise<Log>, 1));
  registry.add_cuda("sqrt", elementwise_kernel(run_cuda_pointwise<Sqrt>, 1));
  registry.add_cuda("square", elementwise_kernel(run_cuda_pointwise<Square>, 1));
  registry.add_cuda("reciprocal", elementwise_kernel(run_cuda_pointwise<Reciprocal>, 1));
}
