#pragma once

#include "frit/ops/convolution/convolution_cuda.h"

// Kernels of frit's own for convolutions and their gradients on a GPU, where cuDNN's plans take longer: whether each takes a call, the
// scratch memory that it wants, and what computes the call. All are deterministic. convolution_cuda.cu chooses.

namespace frit::ops {

/// Convolutions of size 1 and their data gradients, over channels-last images, from at most 64 channels to at most 8 or the other way
/// around, with products in float32: all but memory's time is spared, where cuDNN takes three times as long.
bool is_narrow_product(const ConvolutionCall& call);
void narrow_product(const ConvolutionCall& call, CUstream_st* stream);

/// Convolutions of size 1 and their gradients, over channels-last images, without tensor cores: cuDNN's plans for those take up to fifty
/// times as long as the product of matrices that it is.
bool is_pointwise_product(const ConvolutionCall& call);
std::size_t pointwise_product_scratch(const ConvolutionCall& call);
void pointwise_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

/// Convolutions in which each channel has a kernel of its own, and their data gradients, over channels-last images: cuDNN's plans for those
/// take up to twenty times as long. With the call's epilogue.
bool is_depthwise_convolution(const ConvolutionCall& call);
void depthwise_convolution(const ConvolutionCall& call, CUstream_st* stream);
/// How: ", in tiles", ", in rows".
const char* depthwise_schedule(const ConvolutionCall& call);

/// Their weight gradients.
bool is_depthwise_weight_gradient(const ConvolutionCall& call);
std::size_t depthwise_weight_gradient_scratch(const ConvolutionCall& call);
void depthwise_weight_gradient(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

/// Convolutions with 3 x 3 x 3 or 3 x 3 taps, a stride of 1 and few channels, and their data gradients, on Hopper's tensor cores, over
/// channels-last images. Whether there is a kernel for the call, on its device: as many as 64 channels, of the input in vectors of 16
/// bytes, of the result a multiple of 8.
bool has_swept_convolution(const ConvolutionCall& call);
/// Whether that is to run. With 3 x 3 x 3 taps it takes an eighth of the time of cuDNN's best plans from a single vector, half of it where
/// 32 channels are involved, the same for 64 to 64 in halves, and more in TF32. With 3 x 3 taps it is for at most 64 bytes of a pixel and
/// no fewer output channels, and takes half the time of im2col and a product. It is no good for images too small to fill the device.
bool is_swept_convolution(const ConvolutionCall& call);
/// Whether the epilogue is done, or there is none: see ConvolutionStages.
bool swept_convolution(const ConvolutionCall& call, CUstream_st* stream);
void prepare_swept_convolution(const ConvolutionCall& call);

/// Convolutions with few channels and taps, to a channels-last image, on tensor cores: cuDNN's plans for those take up to three times as
/// long.
bool is_tap_convolution(const ConvolutionCall& call);
void tap_convolution(const ConvolutionCall& call, CUstream_st* stream);

/// Weight gradients of convolutions with few channels and more than one tap, over channels-last images, on tensor cores: cuDNN's plans for
/// those take up to three times as long.
bool is_tap_product(const ConvolutionCall& call);
std::size_t tap_product_scratch(const ConvolutionCall& call);
void tap_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

/// Weight gradients of convolutions with 3 x 3 taps (in 3-D, of any depth) and a stride of 1, in TF32 over channels-last images, with so
/// many channels and pixels that Hopper's warpgroups are faster at it row by row than cuDNN: up to 2.3 times in two dimensions, 3.5 in
/// three.
bool is_row_product(const ConvolutionCall& call);
std::size_t row_product_scratch(const ConvolutionCall& call);
void row_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

/// Weight gradients of convolutions with few channels, over channels-last images, on tensor cores, that windows of taps are faster at than
/// cuDNN: mostly in three dimensions, where that takes up to four times as long.
bool is_window_product(const ConvolutionCall& call);
std::size_t window_product_scratch(const ConvolutionCall& call);
void window_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);

/// Any convolution or gradient of one by its definition: for what cuDNN has no plan for. Needs no memory, and is slow. Any sizes, an empty
/// batch too; all floating dtypes; each operand contiguous or channels-last, as it comes.
void direct_convolution(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                        CUstream_st* stream);

}  // namespace frit::ops
