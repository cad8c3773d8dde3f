// (x - mean) * rstd * weight + bias and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

FRIT_CUDA_KERNELS(instance_norm) { CudaNorm<InstanceNormAttributes>().add_to(registry, "instance_norm"); }
