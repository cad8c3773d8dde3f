// conv_transpose2d and conv_transpose3d on CUDA devices: data gradients of convolutions.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

ConvolutionCall read_transposed(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes) {
  return {cudnn::ConvolutionKind::data_gradient,
          transposed_geometry(inputs[0].shape(), inputs[1].shape(), attributes.as<ConvolutionOptions>()),
          {outputs[0], inputs[1], inputs[0], inputs.size() > 2 ? inputs[2] : Tensor()}};
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(conv_transpose) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv_transpose", image_rank), convolution_kernel(read_transposed));
  }
}
