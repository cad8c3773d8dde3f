#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is a convolution in which each channel has a kernel of its own, or the data gradient of one, over channels-last images:
/// cuDNN's plans for those take up to twenty times as long.
bool is_depthwise_convolution(const ConvolutionCall& call);
/// With the call's epilogue. Deterministic.
void depthwise_convolution(const ConvolutionCall& call, CUstream_st* stream);
/// How: ", in tiles", ", in rows".
const char* depthwise_schedule(const ConvolutionCall& call);

}  // namespace frit::ops
