#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Whether the call is a convolution of size 1 or its data gradient, over channels-last images, from at most 64 channels to at most 8 or
/// the other way around: all but memory's time is spared, where cuDNN takes three times as long.
bool is_narrow_product(const ConvolutionCall& call);
/// With products in float32. Deterministic.
void narrow_product(const ConvolutionCall& call, CUstream_st* stream);

}  // namespace frit::ops
