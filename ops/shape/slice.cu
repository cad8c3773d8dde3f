// Slices, and their gradient: zeros around and between the elements.

#include "frit/ops/cuda/embed.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/shape_attributes.h"

namespace frit::ops {
namespace {

/// In another dtype embedded in an output that has no other elements.
void run_cuda_slice(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  if (output.dtype() == call.inputs[0].dtype()) return copy(output, call.op.part(call.inputs[0], call.attributes));
  const Dims none = Dims::filled(output.rank(), 0), one = Dims::filled(output.rank(), 1);
  embed(call.stream, output, call.op.part(call.inputs[0], call.attributes), none, one, 0);
}

void run_cuda_slice_backward(const KernelContext& call) {
  const auto& attributes = call.as<SliceBackwardAttributes>();
  const Tensor& output = call.outputs[0];
  const int axis = normalize_axis(attributes.axis, output.rank(), "slice_backward");
  Dims before = Dims::filled(output.rank(), 0), step = Dims::filled(output.rank(), 1);
  before[axis] = attributes.begin;
  step[axis] = attributes.step;
  embed(call.stream, output, call.inputs[0], before, step, 0);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(slice) {
  registry.add_cuda("slice", {.run = run_cuda_slice, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  registry.add_cuda("slice_backward",
                    {.run = run_cuda_slice_backward, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
