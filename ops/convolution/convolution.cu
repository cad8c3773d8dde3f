// conv2d and conv3d on CUDA devices.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

ConvolutionCall read_convolution(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes) {
  return {cudnn::ConvolutionKind::forward,
          convolution_geometry(inputs[0].shape(), inputs[1].shape(), attributes.as<ConvolutionOptions>()),
          {inputs[0], inputs[1], outputs[0], inputs.size() > 2 ? inputs[2] : Tensor()}};
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv", image_rank), convolution_kernel(read_convolution));
  }
}
