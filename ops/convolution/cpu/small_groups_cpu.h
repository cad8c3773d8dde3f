#pragma once

#include "frit/ops/convolution/cpu/convolution_cpu.h"

namespace frit::ops {

// Convolutions on the CPU whose groups have so few channels that a vector holds several, of which depthwise ones have one each (see
// is_depthwise), for float and double: vectors of neighbouring channels. Contiguous images are rearranged in scratch memory.

bool has_small_groups(const Direction& d, std::size_t element_size);
const char* small_groups_schedule(const Direction& d);

/// (taps, channels of the source's group, channels of the output)
template <class T>
void pack_small_groups(const Direction& d, Image<const T> weight, T* packed);
std::int64_t packed_small_groups_elements(const Direction& d);

/// What a direction's source and taps give; `bias` may be null.
template <class T>
void convolve_small_groups(const Direction& d, Image<const T> source, const T* packed, const T* bias, Image<T> output,
                           std::span<std::byte> scratch, const Finish& finish);
std::size_t small_groups_scratch(const Direction& d, ImageLayouts layouts, std::size_t element_size, const Finish& finish);

template <class T>
void small_groups_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                                  std::span<std::byte> scratch);
std::size_t small_groups_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

}  // namespace frit::ops
