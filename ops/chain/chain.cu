// Chains on CUDA devices.

#include "frit/core/cuda/runtime.h"
#include "frit/ops/chain/chain_attributes.h"

FRIT_CUDA_KERNELS(chain) {
  Kernel kernel = chain_kernel(cuda::current_device);
  kernel.prepare = prepare_chain;
  kernel.any_layout_inputs = kernel.any_layout_outputs = {0, 1, 2};
  kernel.one_layout = kernel.prefers_channels_last = true;
  kernel.mixes_layouts = [](const Attributes& attributes) {
    return attributes.as<ChainAttributes>().call.centre.op->cuda.staged.mixes_layouts;
  };
  registry.add_cuda("chain", std::move(kernel));
}
