// (x - mean) * rstd * weight + bias and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

FRIT_CUDA_KERNELS(group_norm) { CudaNorm<GroupNormAttributes>().add_to(registry, "group_norm"); }
