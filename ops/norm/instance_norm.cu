// (x - mean) * rstd * weight + bias and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

FRIT_CUDA_KERNELS(instance_norm) { add_cuda_grouped_norm<InstanceNormAttributes>(registry, "instance_norm", /*images=*/true); }
