// Chains whose centre has a kernel that computes it with its stages; the others are computed in their parts.

#include "frit/core/cuda/runtime.h"
#include "frit/ops/chain/chain_attributes.h"

namespace frit::ops {
namespace {

bool has_kernel(const ChainCall& chain, const KernelContext& centre) {
  const StagedKernel& staged = centre.op.cuda.staged;
  return staged && staged.takes(centre, chain.stages());
}

void run(const KernelContext& context) {
  const ChainCall chain(context);
  const KernelContext centre = chain.centre(context);
  has_kernel(chain, centre) ? centre.op.cuda.staged.run(centre, chain.stages()) : run_chain_in_parts(context);
}

void prepare(const KernelContext& context) {
  const ChainCall chain(context);
  const KernelContext centre = chain.centre(context);
  if (has_kernel(chain, centre) && centre.op.cuda.staged.prepare) centre.op.cuda.staged.prepare(centre, chain.stages());
}

std::string describe(const KernelContext& context) {
  const ChainCall chain(context);
  const KernelContext centre = chain.centre(context);
  return concat(has_kernel(chain, centre) ? "one kernel around " : "in its parts, around ", centre.op.name);
}

/// Whether there is a kernel depends on types and layouts alone: with it, nothing lies between the parts.
std::size_t scratch(const InferContext& call) {
  const Device device = cuda::current_device();
  const auto tensor = [&](const TensorType& type, Layout layout) {
    return Tensor::over(nullptr, type.shape, type.dtype, device, nullptr, layout);
  };
  std::vector<Tensor> inputs, outputs;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(tensor(call.inputs[i], call.input_layout(i)));
  const std::vector<TensorType> results = call.op.infer_types(call.inputs, call.attributes);
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.push_back(tensor(results[i], i < call.layouts.outputs.size() ? call.layouts.outputs[i] : Layout::contiguous));
  }
  const KernelContext context{call.op, call.attributes, inputs, outputs, {}};
  const ChainCall chain(context);
  const KernelContext centre = chain.centre(context);
  if (!has_kernel(chain, centre)) return chain_scratch_in_parts(call, device);
  if (!centre.op.cuda.scratch) return 0;
  std::vector<TensorType> types;
  CallLayouts layouts{.outputs = call.layouts.outputs};
  for (const Tensor& input : centre.inputs) {
    types.push_back(input.defined() ? TensorType{input.dtype(), input.shape()} : chain.stages().input_type);
    layouts.inputs.push_back(input.defined() ? input.layout() : Layout::contiguous);
  }
  return centre.op.cuda.scratch({centre.op, types, centre.attributes, layouts});
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(chain) {
  registry.add_cuda("chain", {.run = run,
                              .prepare = prepare,
                              .halves = true,
                              .scratch = scratch,
                              .any_layout_inputs = {0},
                              .any_layout_outputs = {0, 1, 2},
                              .one_layout = true,
                              .prefers_channels_last = true,
                              .describe = describe});
}
