#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is a convolution of size 1, or a gradient of one, over channels-last images, computed without tensor cores: cuDNN's
/// plans for those take up to fifty times as long as the product of matrices that it is.
bool is_pointwise_product(const ConvolutionCall& call);
std::size_t pointwise_product_scratch(const ConvolutionCall& call);
/// Deterministic.
void pointwise_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

}  // namespace frit::ops
