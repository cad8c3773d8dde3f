// Functions of one argument, and the gradient of abs.

#include "frit/ops/elementwise/pointwise.cuh"

FRIT_CUDA_KERNELS(unary) { add_cuda_functions(registry, unary_functions); }
