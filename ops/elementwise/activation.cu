// The activations and their gradients.

#include "frit/ops/elementwise/pointwise.cuh"

FRIT_CUDA_KERNELS(activation) { add_cuda_functions(registry, activation_functions); }
