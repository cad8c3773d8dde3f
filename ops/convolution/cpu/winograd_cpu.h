#pragma once

#include "frit/ops/convolution/cpu/convolution_cpu.h"

namespace frit::ops {

// Winograd's minimal filtering F(4 x 4, 3 x 3) on the CPU: 36 products where the sums over 3 x 3 taps take 144 for a tile of 4 x 4 outputs.
// In float32, in either direction of a convolution with steps of 1 along the last two axes. A third axis' taps
// are added up in the products. Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015; with the points 0, 2/3, -2/3,
// 3/2, -3/2, whose largest rounding errors are a fourth of those of 0, 1, -1, 2, -2: some eight times those of plain sums.
// An infinite or NaN input makes NaN of all outputs of the tiles that read it.

/// Whether a convolution's kernel and channels are such that tiles pay, for its gradients too.
bool tiles_suit(const ConvolutionGeometry& g, std::size_t element_size);

/// Whether it can compute a direction, and is the faster way.
bool suits_winograd(const Direction& d, std::size_t element_size);

/// The weights of each element of a tile.
void pack_for_winograd(const Direction& d, Image<const float> weight, float* packed);
Packing winograd_packing(const Direction& d);

void winograd_convolve(const Direction& d, Image<const float> source, const Weight<float>& weight, const float* bias, Image<float> output,
                       std::span<std::byte> scratch, const Finish& finish);
std::size_t winograd_scratch(const Direction& d, ImageLayouts layouts, const Finish& finish);

// A convolution's weight gradient by the transposition of this filtering, F(3 x 3, 4 x 4): the products of transformed tiles of 6 x 6
// inputs and 4 x 4 output gradients, added up over all tiles, are the transform of the gradient of 3 x 3 taps. A fourth of the products
// that the sums over positions take; in float32, over channels-last images, with steps of 1 along the last two axes. An infinite or NaN
// number in a tile makes NaN of all taps of its channels.

/// Whether it can compute one, and is the faster way.
bool suits_winograd_weight_gradient(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

void winograd_weight_gradient(const ConvolutionGeometry& g, const float* output, const float* input, Image<float> weight,
                              std::span<std::byte> scratch);
std::size_t winograd_weight_gradient_scratch(const ConvolutionGeometry& g);

}  // namespace frit::ops
