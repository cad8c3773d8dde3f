// The gradients of conv2d and conv3d on CUDA devices.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using cudnn::ConvolutionKind;

void run_data_gradient(const KernelContext& call) {
  const ConvolutionGeometry g = data_gradient_geometry(call.inputs[0].shape(), call.inputs[1].shape(), call.as<DataGradientOptions>());
  convolve_cuda(ConvolutionKind::data_gradient, g, {call.outputs[0], call.inputs[1], call.inputs[0], {}}, call.scratch, call.stream);
}

void run_weight_gradient(const KernelContext& call) {
  const ConvolutionGeometry g = weight_gradient_geometry(call.inputs[0].shape(), call.inputs[1].shape(), call.as<WeightGradientOptions>());
  convolve_cuda(ConvolutionKind::weight_gradient, g, {call.inputs[1], call.outputs[0], call.inputs[0], {}}, call.scratch, call.stream);
}

std::size_t data_gradient_scratch(const InferContext& call) {
  const ConvolutionGeometry g = data_gradient_geometry(call.shape(0), call.shape(1), call.as<DataGradientOptions>());
  return convolution_cuda_scratch(ConvolutionKind::data_gradient, g, call.inputs[0].dtype, false);
}

std::size_t weight_gradient_scratch(const InferContext& call) {
  const ConvolutionGeometry g = weight_gradient_geometry(call.shape(0), call.shape(1), call.as<WeightGradientOptions>());
  return convolution_cuda_scratch(ConvolutionKind::weight_gradient, g, call.inputs[0].dtype, false);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution_gradient) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv", image_rank, "_data_gradient"),
                      {.run = run_data_gradient, .scratch = data_gradient_scratch, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
    registry.add_cuda(convolution_name("conv", image_rank, "_weight_gradient"),
                      {.run = run_weight_gradient, .scratch = weight_gradient_scratch, .any_layout_inputs = {0, 1}});
  }
}
