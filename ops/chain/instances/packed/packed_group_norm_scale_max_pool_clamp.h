#pragma once

#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/operator/in_turn.h"

namespace frit::ops {

// group_norm_scale_max_pool_clamp of a convolution of size 1 after im2col (see subpixel.h). What the convolution gives need not be
// stored, and neither need its gradient: the backward operator recomputes both. The results are those of the chain.

struct PackedGroupNormPoolAttributes {
  Im2colAttributes im2col;
  GroupNormScaleMaxPoolClampAttributes chain;

  void fields(FieldVisitor& v) {
    im2col.fields(v);
    chain.fields(v);
  }
};

/// What the kernels are made for.
struct PackedGroupNormPoolKernels {
  static constexpr int out_channels = 32, most_channel_groups = 4;  ///< K: so many output channels, in groups whose number is a power of 2
  static constexpr int width = 4, channels = 16;                    ///< a tap's channels are a multiple of the one, at most the other
  static constexpr int columns = 80;                                ///< of an output channel of the weight, at most
  static constexpr int widest = 4, highest = 16;                    ///< windows are side by side, 2 or 4 wide, and at most so high
  /// Without tensor cores: of the convolution's kernel, and the most channels, all of the image; windows are squares.
  static constexpr int strict_side = 3, strict_channels = 8;
};

/// Whether there are kernels for such an image, a weight (K, columns, 1, 1) and the current Numerics.
bool has_packed_group_norm_pool_kernels(const TensorType& image, const TensorType& weight, const PackedGroupNormPoolAttributes& attributes);

/// Of what the convolution gives.
Shape convolved_shape(const Shape& image, const Shape& weight, const Im2colAttributes& im2col);

/// The calls in turn: im2col, the convolution and the chain, forward or backward.
Values packed_group_norm_pool_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes);
Values packed_group_norm_pool_backward_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes);

}  // namespace frit::ops
