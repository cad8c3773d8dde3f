// conv2d and conv3d on CUDA devices.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

constexpr auto kind = cudnn::ConvolutionKind::forward;

void run_convolution(const KernelContext& call) {
  const ConvolutionGeometry g = convolution_geometry(call.inputs[0].shape(), call.inputs[1].shape(), call.as<ConvolutionOptions>());
  const Tensor bias = call.has(2) ? call.inputs[2] : Tensor();
  convolve_cuda(kind, g, {call.inputs[0], call.inputs[1], call.outputs[0], bias}, call.scratch, call.stream);
}

std::size_t convolution_scratch(const InferContext& call) {
  const ConvolutionGeometry g = convolution_geometry(call.shape(0), call.shape(1), call.as<ConvolutionOptions>());
  return convolution_cuda_scratch(kind, g, call.inputs[0].dtype, call.has(2));
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv", image_rank),
                      {.run = run_convolution, .scratch = convolution_scratch, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  }
}
