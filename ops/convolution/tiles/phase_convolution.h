#pragma once

#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {

/// The kernel for a transposed convolution with a stride of 2, or for such a data gradient, but for the bias, on a Hopper GPU with so many
/// multiprocessors; none where it does not take the call.
std::optional<CentreKernel> phase_centre(const ConvolutionCall& call, int multiprocessors);

/// For the table of kernels in convolution_cuda.cu: any call that it takes on its device, with the program that follows; where it should be
/// the fastest.
std::optional<OwnKernel> phase_kernel(const ConvolutionCall& call);
std::optional<OwnKernel> phase_convolution(const ConvolutionCall& call);

}  // namespace frit::ops
