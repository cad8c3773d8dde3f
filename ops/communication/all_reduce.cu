// Means over processes: NCCL's kernels, in the order of the call's stream.

#include "frit/ops/communication/all_reduce_attributes.h"
#include "frit/ops/operator/registry.h"

FRIT_CUDA_KERNELS(all_reduce) { registry.add_cuda("all_reduce", {.run = mean_over_processes, .halves = true}); }
