#pragma once

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "ops/tensor_core_checks.h"

namespace frit {

/// Of a convolution.
struct Sizes {
  Shape input;
  std::int64_t outputs;
  Dims padding = {1}, kernel = {3}, stride = {1};
  std::int64_t groups = 1;
};

/// Of random tensors, or of none.
inline ops::ConvolutionCall call_of(const Sizes& sizes, cudnn::ConvolutionKind kind, DType dtype, Device device, bool filled,
                                    Layout weight_layout = Layout::channels_last) {
  const int axes = sizes.input.rank() - 2;
  Shape weight = {sizes.outputs, sizes.input[1] / sizes.groups}, output = {sizes.input[0], sizes.outputs};
  for (int axis = 0; axis < axes; ++axis) weight.push_back(sizes.kernel.rank() == 1 ? sizes.kernel[0] : sizes.kernel[axis]);
  const ConvolutionOptions options{.stride = sizes.stride, .padding = sizes.padding, .groups = sizes.groups};
  const ops::ConvolutionGeometry g = ops::convolution_geometry(sizes.input, weight, ops::canonical(options, axes));
  for (const std::int64_t size : std::span(g.output).last(static_cast<std::size_t>(axes))) output.push_back(size);
  const auto tensor = [&](const Shape& shape, std::uint64_t seed, Layout layout = Layout::channels_last) {
    return filled ? normal_tensor(shape, DType::f32, seed).to(dtype).to(device).contiguous(layout)
                  : Tensor::over(nullptr, shape, dtype, device, nullptr, layout);
  };
  ops::ConvolutionCall call{kind, g, {tensor(sizes.input, 1), tensor(weight, 2, weight_layout), tensor(output, 3), {}}};
  call.operands.bias = tensor({call.operands.result(kind).dim(1)}, 4, Layout::contiguous);
  return call;
}

/// By the definition, in float64.
inline Tensor by_definition(const ops::ConvolutionCall& call) {
  ops::ConvolutionCall exact = call;
  for (Tensor* const t : {&exact.operands.input, &exact.operands.weight, &exact.operands.output, &exact.operands.bias}) {
    if (t->defined()) *t = t->to(DType::f64);
  }
  ops::direct_convolution(exact.kind, exact.geometry, exact.operands, cuda::compute_stream(call.operands.weight.device().index));
  return exact.operands.result(exact.kind).to(Device::cpu()).contiguous();
}

}  // namespace frit
