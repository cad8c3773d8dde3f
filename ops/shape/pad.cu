// Constant padding.

#include "frit/ops/cuda/embed.h"
#include "frit/ops/registry.h"
#include "frit/ops/shape/shape_attributes.h"

namespace frit::ops {
namespace {

void run_cuda_pad(const KernelContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  const Dims step = Dims::filled(call.outputs[0].rank(), 1);
  embed(call.stream, call.outputs[0], call.inputs[0], attributes.before, step, attributes.value);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(pad) {
  registry.add_cuda("pad", {.run = run_cuda_pad, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
