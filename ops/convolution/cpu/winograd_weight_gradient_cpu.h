#pragma once

#include "frit/ops/convolution/cpu/convolution_cpu.h"

namespace frit::ops {

// A convolution's weight gradient on the CPU by the transposition of Winograd's filtering (see winograd_cpu.h), F(3 x 3, 4 x 4): the
// products of transformed tiles of 6 x 6 inputs and 4 x 4 output gradients, added up over all tiles, are the transform of the gradient of 3
// x 3 taps. A fourth of the products that the sums over positions take; in float32, over channels-last images, with steps of 1 along the
// last two axes. An infinite or NaN number in a tile makes NaN of all taps of its channels.

/// Whether it can compute one, and is the faster way.
bool suits_winograd_weight_gradient(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

void winograd_weight_gradient(const ConvolutionGeometry& g, const float* output, const float* input, Image<float> weight,
                              std::span<std::byte> scratch);
std::size_t winograd_weight_gradient_scratch(const ConvolutionGeometry& g);

}  // namespace frit::ops
