// Slices, and their gradient: zeros around and between the elements.

#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/padded_axes.h"
#include "frit/ops/shape/shape_attributes.h"

namespace frit::ops {
namespace {

/// In another dtype as if padded by nothing.
void run_cuda_slice(const KernelContext& call) {
  const Tensor &output = call.outputs[0], part = call.op.part(call.inputs[0], call.attributes);
  if (output.dtype() == part.dtype()) return copy(output, part);
  const Dims none = Dims::filled(output.rank(), 0), one = Dims::filled(output.rank(), 1);
  pad_on_gpu(call.stream, output, part, constant_margins(output, part, none, one), 0);
}

PaddedAxes axes_of(const KernelContext& call) {
  const auto& attributes = call.as<SliceBackwardAttributes>();
  const Tensor& output = call.outputs[0];
  const int axis = normalize_axis(attributes.axis, output.rank(), "slice_backward");
  Dims before = Dims::filled(output.rank(), 0), step = Dims::filled(output.rank(), 1);
  before[axis] = attributes.begin;
  step[axis] = attributes.step;
  return constant_margins(output, call.inputs[0], before, step);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(slice) {
  registry.add_cuda("slice", {.run = run_cuda_slice, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  registry.add_cuda("slice_backward", padding_kernel(axes_of));
}
