// conv_transpose2d and conv_transpose3d on CUDA devices: data gradients of convolutions.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

constexpr auto kind = cudnn::ConvolutionKind::data_gradient;

void run_transposed(const KernelContext& call) {
  const ConvolutionGeometry g = transposed_geometry(call.inputs[0].shape(), call.inputs[1].shape(), call.as<ConvolutionOptions>());
  const Tensor bias = call.has(2) ? call.inputs[2] : Tensor();
  convolve_cuda(kind, g, {call.outputs[0], call.inputs[1], call.inputs[0], bias}, call.scratch, call.stream);
}

std::size_t transposed_scratch(const InferContext& call) {
  const ConvolutionGeometry g = transposed_geometry(call.shape(0), call.shape(1), call.as<ConvolutionOptions>());
  return convolution_cuda_scratch(kind, g, call.inputs[0].dtype, call.has(2));
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(conv_transpose) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv_transpose", image_rank),
                      {.run = run_transposed, .scratch = transposed_scratch, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  }
}
