#pragma once

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {

/// The kernel for a transposed convolution with a stride of 2, or for such a data gradient, but for the bias, on a Hopper GPU with so many
/// multiprocessors; none where it does not take the call.
std::optional<CentreKernel> phase_kernel(const ConvolutionCall& call, int multiprocessors);

/// For the table of kernels in convolution_cuda.cu: whether there is one on the call's device, with the program that follows, and should be
/// the fastest.
bool is_phase_convolution(const ConvolutionCall& call);
void phase_convolution(const ConvolutionCall& call, CUstream_st* stream);
void prepare_phase_convolution(const ConvolutionCall& call);

}  // namespace frit::ops
