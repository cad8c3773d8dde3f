#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

// Convolutions with 3 x 3 x 3 or 3 x 3 taps, a stride of 1 and few channels, and their data gradients, on Hopper's tensor cores, over
// channels-last images.

namespace frit::ops {

/// Whether there is a kernel for the call, on its device: as many as 64 channels, of the input in vectors of 16 bytes, of the result a
/// multiple of 8.
bool has_swept_convolution(const ConvolutionCall& call);

/// Whether that is to run. With 3 x 3 x 3 taps it takes an eighth of the time of cuDNN's best plans from a single vector, half of it where
/// 32 channels are involved, the same for 64 to 64 in halves, and more in TF32. With 3 x 3 taps it is for at most 64 bytes of a pixel and
/// no fewer output channels, and takes half the time of im2col and a product. It is no good for images too small to fill the device.
bool is_swept_convolution(const ConvolutionCall& call);

/// Deterministic. Whether the epilogue is done, or there is none: see ConvolutionStages.
bool swept_convolution(const ConvolutionCall& call, CUstream_st* stream);
void prepare_swept_convolution(const ConvolutionCall& call);

}  // namespace frit::ops
