// Chains on CUDA devices.

#include "frit/core/cuda/runtime.h"
#include "frit/ops/chain/chain_attributes.h"

FRIT_CUDA_KERNELS(chain) {
  Kernel kernel = chain_kernel(cuda::current_device, &Operator::cuda);
  kernel.prepare = prepare_chain;
  for (const char* const name : {"chain", "updating_chain", "synchronized_chain", "synchronized_updating_chain"})
    registry.add_cuda(name, kernel);
}
