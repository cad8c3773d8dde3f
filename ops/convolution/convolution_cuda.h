#pragma once

#include <algorithm>

#include "frit/core/half.h"
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
  PartialMoments moments = {};                  ///< where those of the result are to be written, which few kernels find

  /// The image among the epilogue's operands; undefined if there is none.
  Tensor residual() const {
    const auto image = std::find(epilogue.operands.begin(), epilogue.operands.end(), ConvolutionEpilogue::Operand::image);
    return image == epilogue.operands.end() ? Tensor() : operands.others[static_cast<std::size_t>(image - epilogue.operands.begin())];
  }
};

/// A call, other than of a weight gradient, as what it gives from an image: a convolution its output from its input, a data gradient the
/// input from the output. Refers to the call.
struct ImageCall {
  const ConvolutionGeometry& g;
  bool forward;
  const Tensor &image, &weight, &result;
  const ImageAxes &input, &output;         ///< the sizes of the image and of the result
  std::int64_t in_channels, out_channels;  ///< of a group, likewise
  std::int64_t pitch;                      ///< elements from a pixel of the image to the next; 0 where its channels are no neighbours
  int element_bytes;

  explicit ImageCall(const ConvolutionCall& call)
      : g(call.geometry),
        forward(call.kind == cudnn::ConvolutionKind::forward),
        image(forward ? call.operands.input : call.operands.output),
        weight(call.operands.weight),
        result(forward ? call.operands.output : call.operands.input),
        input(forward ? g.input : g.output),
        output(forward ? g.output : g.input),
        in_channels(forward ? g.in_channels : g.out_channels),
        out_channels(forward ? g.out_channels : g.in_channels),
        pitch(image.pixel_pitch()),
        element_bytes(static_cast<int>(size_of(weight.dtype()))) {}

  std::int64_t pixel_bytes() const { return in_channels * element_bytes; }
  /// Of a data gradient with a stride of 1 as the convolution of the mirrored weight that it is.
  std::int64_t padding(std::size_t axis) const { return forward ? g.padding[axis] : g.kernel[axis] - 1 - g.padding[axis]; }
};

/// What an operator's call computes. Asked before the call too, with tensors that have no memory yet.
using ReadConvolution = ConvolutionCall (*)(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes);

/// Calls body.operator()<Stored>() for f32, f16 and bf16, for which there are kernels on tensor cores and others that f64 has none of.
template <class Body>
void dispatch_f32_and_halves(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f16: return body.template operator()<Half>();
    case DType::bf16: return body.template operator()<BFloat16>();
    default: return body.template operator()<float>();
  }
}

/// By a plan of cuDNN, or where that has none by frit's own kernels, with a program that follows. The images may lie in either layout, and
/// so may the weight, which a plan wants in that of the images.
Kernel convolution_kernel(ReadConvolution read);

}  // namespace frit::ops
