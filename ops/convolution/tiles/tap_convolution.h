#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is a convolution with few channels and taps, to a channels-last image, on tensor cores, that there is a kernel for:
/// cuDNN's plans for those take up to three times as long.
bool is_tap_convolution(const ConvolutionCall& call);
/// Deterministic.
void tap_convolution(const ConvolutionCall& call, CUstream_st* stream);

}  // namespace frit::ops
