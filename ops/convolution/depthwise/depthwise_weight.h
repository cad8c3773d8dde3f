#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is the weight gradient of a convolution in which each channel has a kernel of its own, over channels-last images.
bool is_depthwise_weight_gradient(const ConvolutionCall& call);
std::size_t depthwise_weight_gradient_scratch(const ConvolutionCall& call);
/// Deterministic.
void depthwise_weight_gradient(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

}  // namespace frit::ops
