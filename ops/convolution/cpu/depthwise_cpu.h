#pragma once

#include "frit/ops/convolution/cpu/convolution_cpu.h"

namespace frit::ops {

// A depthwise convolution on the CPU (see is_depthwise), in each direction, for float and double: vectors of neighbouring channels.
// Contiguous images are rearranged in scratch memory.

/// (taps, channels)
template <class T>
void pack_depthwise(const Direction& d, Image<const T> weight, T* packed);
std::int64_t packed_depthwise_elements(const Direction& d);

/// What a direction's source and taps give; `bias` may be null.
template <class T>
void depthwise_convolve(const Direction& d, Image<const T> source, const T* packed, const T* bias, Image<T> output,
                        std::span<std::byte> scratch, const Finish& finish);
std::size_t depthwise_scratch(const Direction& d, ImageLayouts layouts, std::size_t element_size, const Finish& finish);

template <class T>
void depthwise_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                               std::span<std::byte> scratch);
std::size_t depthwise_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

}  // namespace frit::ops
