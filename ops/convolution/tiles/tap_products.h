#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is the weight gradient of a convolution with few channels and more than one tap, over channels-last images, on tensor
/// cores: cuDNN's plans for those take up to three times as long.
bool is_tap_product(const ConvolutionCall& call);
std::size_t tap_product_scratch(const ConvolutionCall& call);
/// Deterministic.
void tap_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

}  // namespace frit::ops
