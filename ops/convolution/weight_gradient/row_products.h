#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is the weight gradient of a convolution with 3 x 3 taps (in 3-D, of any depth) and a stride of 1, in TF32 over
/// channels-last images, with so many channels and pixels that Hopper's warpgroups are faster at it row by row than cuDNN: up to 2.3 times
/// in two dimensions, 3.5 in three.
bool is_row_product(const ConvolutionCall& call);
std::size_t row_product_scratch(const ConvolutionCall& call);
/// Deterministic.
void row_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

}  // namespace frit::ops
