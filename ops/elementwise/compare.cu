// Comparisons and where.

#include "frit/ops/elementwise/pointwise.cuh"

FRIT_CUDA_KERNELS(compare) { add_cuda_functions(registry, compare_functions); }
