// Functions of one argument, and the gradient of abs.

#include "frit/ops/cuda/pointwise.h"

FRIT_CUDA_KERNELS(unary) { add_cuda_functions(registry, unary_functions); }
