#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is the weight gradient of a convolution with few channels, over channels-last images, on tensor cores, that windows of
/// taps are faster at than cuDNN: mostly in three dimensions, where that takes up to four times as long.
bool is_window_product(const ConvolutionCall& call);
std::size_t window_product_scratch(const ConvolutionCall& call);
/// Deterministic.
void window_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

}  // namespace frit::ops
