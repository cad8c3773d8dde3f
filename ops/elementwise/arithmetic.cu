// Arithmetic of two arguments, the shares of minimum and maximum in their gradients, and negation.

#include "frit/ops/elementwise/pointwise.cuh"

FRIT_CUDA_KERNELS(arithmetic) { add_cuda_functions(registry, arithmetic_functions); }
