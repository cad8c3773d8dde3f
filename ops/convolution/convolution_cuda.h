#pragma once

#include <algorithm>

#include "frit/ops/libraries/cuda/cudnn.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// A convolution or one of its gradients on a CUDA device.
struct ConvolutionCall {
  cudnn::ConvolutionKind kind;
  ConvolutionGeometry geometry;
  cudnn::ConvolutionOperands operands;
  const ElementwiseProgram* program = nullptr;  ///< of what follows, its inputs the result and `operands.others`
  ConvolutionEpilogue epilogue = {};            ///< what a library may be asked for of it: all, or nothing
  cudnn::Finish finish = {};                    ///< its work

  /// The image among the epilogue's operands; undefined if there is none.
  Tensor residual() const {
    const auto image = std::find(epilogue.operands.begin(), epilogue.operands.end(), ConvolutionEpilogue::Operand::image);
    return image == epilogue.operands.end() ? Tensor() : operands.others[static_cast<std::size_t>(image - epilogue.operands.begin())];
  }
};

/// What an operator's call computes. Asked before the call too, with tensors that have no memory yet.
using ReadConvolution = ConvolutionCall (*)(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes);

/// By a plan of cuDNN, or where that has none by frit's own kernels, with a program that follows. The images may lie in either layout, and
/// so may the weight, which a plan wants in that of the images.
Kernel convolution_kernel(ReadConvolution read, std::vector<int> any_layout_inputs, std::vector<int> any_layout_outputs);

}  // namespace frit::ops
