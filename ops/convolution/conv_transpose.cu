// conv_transpose2d and conv_transpose3d on CUDA devices: data gradients of convolutions.

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/tiles/phase_convolution.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

ConvolutionCall read_transposed(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes) {
  return {cudnn::ConvolutionKind::data_gradient,
          transposed_geometry(inputs[0].shape(), inputs[1].shape(), attributes.as<ConvolutionOptions>()),
          {outputs[0], inputs[1], inputs[0], inputs.size() > 2 ? inputs[2] : Tensor()}};
}

std::optional<CentreKernel> centre(const KernelContext& call, const Stages&) {
  if (call.has(2)) return std::nullopt;  // the bias is part of the program
  return fastest_phase_kernel(read_transposed(call.inputs, call.outputs, call.attributes), /*followed=*/true);
}

/// Of few calls: a library's kernel gives an image that what reads it may take in with the program.
bool leads(std::span<const TensorType> inputs, const Attributes& attributes, int image_rank) {
  if (inputs.size() > 2 || cuda::device_count() == 0) return false;
  const Device device = cuda::current_device();
  const auto tensor = [&](const TensorType& type) {
    return Tensor::over(nullptr, type.shape, type.dtype, device, nullptr, Layout::channels_last);
  };
  const Operator& op = registry().find(convolution_name("conv_transpose", image_rank));
  const std::vector<Tensor> operands = {tensor(inputs[0]), tensor(inputs[1])}, results = {tensor(op.infer_types(inputs, attributes)[0])};
  return fastest_phase_kernel(read_transposed(operands, results, attributes), /*followed=*/true).has_value();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(conv_transpose) {
  for (const int image_rank : {2, 3}) {
    Kernel kernel = convolution_kernel(read_transposed, {0, 1}, {0});
    kernel.staged = staged_by(centre);
    kernel.staged.leads = [image_rank](std::span<const TensorType> inputs, const Attributes& attributes) {
      return leads(inputs, attributes, image_rank);
    };
    registry.add_cuda(convolution_name("conv_transpose", image_rank), std::move(kernel));
  }
}
