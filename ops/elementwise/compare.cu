// Comparisons and where.

#include "frit/ops/cuda/pointwise.h"

FRIT_CUDA_KERNELS(compare) { add_cuda_functions(registry, compare_functions); }
