#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

// A convolution of stride 1 is the data gradient of another one, whose weight has the channels swapped and the taps mirrored, and the other
// way around. cuDNN's kernels for the two are far from equally fast.

namespace frit::ops {

/// Whether a call has a mirror image: a stride of 1, one group, and no more padding than the taps reach beyond a position.
bool has_mirror(const ConvolutionCall& call);

/// The call in the other direction, which gives the same result in the same memory from a weight (C, K, ...); see mirror_weight.
ConvolutionCall mirrored(const ConvolutionCall& call, const Tensor& weight);

/// (C, K, ...) from (K, C, ...), the last tap first. Each lies contiguous or channels-last.
void mirror_weight(const Tensor& to, const Tensor& from, CUstream_st* stream);

}  // namespace frit::ops
