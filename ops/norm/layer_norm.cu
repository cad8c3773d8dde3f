// (x - mean) * rstd * weight + bias and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

FRIT_CUDA_KERNELS(layer_norm) { add_cuda_grouped_norm<LayerNormAttributes>(registry, "layer_norm", /*images=*/false); }
