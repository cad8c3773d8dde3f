#pragma once

#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {

/// The kernel for a convolution, or for a data gradient, without groups with a stride of 1, but for the bias and the epilogue, on a Hopper
/// GPU with so many multiprocessors, yet without a weight; none where it does not take the call.
std::optional<CentreKernel> patch_centre(const ConvolutionCall& call, int multiprocessors);

/// Whether that should be faster than cuDNN's, with the pass that the program after the call would be.
bool is_patch_kernel_faster(const ConvolutionCall& call, int multiprocessors);

/// For the table of kernels in convolution_cuda.cu: any call that it takes on its device; where it should be the fastest; where it is
/// faster than frit's other kernels, too.
std::optional<OwnKernel> patch_kernel(const ConvolutionCall& call);
std::optional<OwnKernel> patch_convolution(const ConvolutionCall& call);
std::optional<OwnKernel> narrow_patch_convolution(const ConvolutionCall& call);

}  // namespace frit::ops
