// The gradients of conv2d and conv3d on CUDA devices.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using cudnn::ConvolutionKind;

ConvolutionCall read_data_gradient(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes) {
  return {ConvolutionKind::data_gradient,
          data_gradient_geometry(inputs[0].shape(), inputs[1].shape(), attributes.as<DataGradientOptions>()),
          {outputs[0], inputs[1], inputs[0], {}}};
}

ConvolutionCall read_weight_gradient(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes) {
  return {ConvolutionKind::weight_gradient,
          weight_gradient_geometry(inputs[0].shape(), inputs[1].shape(), attributes.as<WeightGradientOptions>()),
          {inputs[1], outputs[0], inputs[0], {}}};
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution_gradient) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv", image_rank, "_data_gradient"), convolution_kernel(read_data_gradient));
    registry.add_cuda(convolution_name("conv", image_rank, "_weight_gradient"), convolution_kernel(read_weight_gradient));
  }
}
