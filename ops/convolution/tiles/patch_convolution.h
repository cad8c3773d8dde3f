#pragma once

#include <span>

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {

/// The kernel for a convolution, or for a data gradient with a stride of 1, but for the bias and the epilogue, on a Hopper GPU with so many
/// multiprocessors, yet without a weight; none where it does not take the call.
std::optional<CentreKernel> patch_kernel(const ConvolutionCall& call, int multiprocessors);

/// Whether that should be faster than cuDNN's, with the pass that the program after the call would be.
bool is_patch_kernel_faster(const ConvolutionCall& call, int multiprocessors);

/// For the table of kernels in convolution_cuda.cu: whether it should be the fastest; whether the epilogue is done.
bool is_patch_convolution(const ConvolutionCall& call);
bool is_narrow_patch_convolution(const ConvolutionCall& call);  ///< faster than frit's other kernels, too
std::size_t patch_convolution_scratch(const ConvolutionCall& call);
bool patch_convolution(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);
void prepare_patch_convolution(const ConvolutionCall& call);

}  // namespace frit::ops
