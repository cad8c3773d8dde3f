#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is the weight gradient of a convolution of size 1, computed without tensor cores: cuDNN's plans for those take up to
/// fifty times as long as the product of matrices that it is.
bool is_pointwise_gradient(const ConvolutionCall& call);
std::size_t pointwise_gradient_scratch(const ConvolutionCall& call);
/// A product for each plane of pixels, and their sum. Deterministic.
void pointwise_gradient(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

}  // namespace frit::ops
