// Chains on CUDA devices.

#include "frit/core/cuda/runtime.h"
#include "frit/ops/chain/chain_attributes.h"

FRIT_CUDA_KERNELS(chain) {
  Kernel kernel = chain_kernel(cuda::current_device, &Operator::cuda);
  kernel.prepare = prepare_chain;
  registry.add_cuda("updating_chain", kernel);
  registry.add_cuda("chain", std::move(kernel));
}
