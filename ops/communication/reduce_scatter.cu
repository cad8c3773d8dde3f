// Parts of means over processes, and variables of parts: NCCL's kernels, in the order of the call's stream.

#include "frit/ops/communication/all_reduce_attributes.h"
#include "frit/ops/operator/registry.h"

FRIT_CUDA_KERNELS(reduce_scatter) {
  registry.add_cuda("reduce_scatter", {.run = parts_of_mean_over_processes, .halves = true});
  registry.add_cuda("gather_parts", {.run = gather_parts_of_processes, .halves = true});
}
