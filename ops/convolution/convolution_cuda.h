#pragma once

#include <span>

#include "frit/ops/cuda/cudnn.h"

namespace frit::ops {

/// A convolution or one of its gradients on a CUDA device: by a plan of cuDNN, or where that has none by frit's own kernels. Input and
/// output lie contiguous or channels-last, each as it comes, the weight and the bias contiguous. `scratch` has the bytes that
/// convolution_cuda_scratch tells for the current device, and room for a result that must be rearranged.
void convolve_cuda(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                   std::span<std::byte> scratch, CUstream_st* stream);
/// Looks for the plans that the call will need.
std::size_t convolution_cuda_scratch(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, DType dtype, bool bias);

/// image (N, C, ...) += bias (C), in either layout.
void add_channel_bias(const Tensor& image, const Tensor& bias, CUstream_st* stream);

}  // namespace frit::ops
