#pragma once

#include <functional>
#include <optional>

#include "frit/ops/convolution/convolution_cuda.h"

// Kernels of frit's own for convolutions and their gradients on a GPU, where cuDNN's plans take longer: how each computes a call; none
// where it does not take the call, or is not to. All are deterministic. convolution_cuda.cu chooses.

namespace frit::ops {

/// Refers to the call.
struct OwnKernel {
  const char* schedule;  ///< for Kernel::describe
  std::size_t scratch_bytes;
  std::function<void(std::span<std::byte> scratch, CUstream_st* stream)> run;
  bool finishes = false;               ///< computes the epilogue, too
  std::function<void()> prepare = {};  ///< see Kernel::prepare; with one, a kernel is compiled for the call and takes any program
  bool takes_parts = false;            ///< images may be some of the channels of wider ones
  std::int64_t moment_parts = 0;       ///< that it finds the call's moments in, of each sample; 0: it finds none
};

/// Convolutions of size 1 and their data gradients, over channels-last images, from at most 64 channels to at most 8 or the other way
/// around, with products in float32: all but memory's time is spared, where cuDNN takes three times as long.
std::optional<OwnKernel> narrow_product(const ConvolutionCall& call);

/// Such convolutions with any channels over so few pixels that these fill no tiles, as where an image was averaged before, and their data
/// gradients, with what follows: cuDNN's plans take some 5 microseconds longer.
std::optional<OwnKernel> few_pixel_product(const ConvolutionCall& call);

/// Weight gradients of convolutions of size 1, of at most 256 channels and 8, which cuDNN computes at a third of memory's speed.
std::optional<OwnKernel> narrow_weight_gradient(const ConvolutionCall& call);

/// Convolutions of size 1 and their gradients, over channels-last images, without tensor cores: cuDNN's plans for those take up to fifty
/// times as long as the product of matrices that it is.
std::optional<OwnKernel> pointwise_product(const ConvolutionCall& call);

/// Convolutions in which each channel has a kernel of its own, and their data gradients, over channels-last images: cuDNN's plans for those
/// take up to twenty times as long. With the call's epilogue.
std::optional<OwnKernel> depthwise_convolution(const ConvolutionCall& call);
/// Their weight gradients.
std::optional<OwnKernel> depthwise_weight_gradient(const ConvolutionCall& call);

/// Convolutions with 3 x 3 x 3 or 3 x 3 taps, a stride of 1 and few channels, and their data gradients, on Hopper's tensor cores, over
/// channels-last images: as many as 64 channels, of the input in vectors of 16 bytes, of the result a multiple of 8.
std::optional<OwnKernel> swept_kernel(const ConvolutionCall& call);
/// Where that is to run. With 3 x 3 x 3 taps it takes an eighth of the time of cuDNN's best plans from a single vector, half of it where
/// 32 channels are involved, the same for 64 to 64 in halves, and more in TF32. With 3 x 3 taps it is for at most 64 bytes of a pixel and
/// no fewer output channels, and takes half the time of im2col and a product. It is no good for images too small to fill the device.
std::optional<OwnKernel> swept_convolution(const ConvolutionCall& call);

/// Convolutions with few channels and taps, to a channels-last image, on tensor cores: cuDNN's plans for those take up to three times as
/// long.
std::optional<OwnKernel> tap_convolution(const ConvolutionCall& call);

/// Weight gradients of convolutions with few channels and more than one tap, over channels-last images, on tensor cores: cuDNN's plans for
/// those take up to three times as long.
std::optional<OwnKernel> tap_product(const ConvolutionCall& call);

/// Weight gradients of convolutions with 3 x 3 taps (in 3-D, of any depth) and a stride of 1, in TF32 over channels-last images, with so
/// many channels and pixels that Hopper's warpgroups are faster at it row by row than cuDNN: up to 2.3 times in two dimensions, 3.5 in
/// three.
std::optional<OwnKernel> row_product(const ConvolutionCall& call);

/// Weight gradients of convolutions with few channels, or small groups of them, over channels-last images, on tensor cores, that windows of
/// taps are faster at than cuDNN: mostly in three dimensions, where that takes up to four times as long, and of groups.
std::optional<OwnKernel> window_product(const ConvolutionCall& call);

/// Any convolution or gradient of one by its definition: for what cuDNN has no plan for. Needs no memory, and is slow. Any sizes, an empty
/// batch too; all floating dtypes; each operand contiguous or channels-last, as it comes.
void direct_convolution(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                        CUstream_st* stream);

}  // namespace frit::ops
