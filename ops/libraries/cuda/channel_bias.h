#pragma once

#include "frit/core/tensor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace frit::ops {

/// image (N, C, ...) += bias (C), in either layout.
void add_channel_bias(const Tensor& image, const Tensor& bias, CUstream_st* stream);

}  // namespace frit::ops
