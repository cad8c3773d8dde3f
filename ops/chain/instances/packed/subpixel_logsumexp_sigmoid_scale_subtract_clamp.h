#pragma once

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/operator/in_turn.h"

namespace frit::ops {

// logsumexp_sigmoid_scale_subtract_clamp of a sub-pixel convolution (see subpixel.h). What the convolution gives need not be stored, and
// neither need its gradient: the backward operator recomputes both.

struct SubpixelLogsumexpAttributes {
  Im2colAttributes im2col;
  LogsumexpSigmoidScaleSubtractClampAttributes chain;  ///< in blocks

  void fields(FieldVisitor& v) {
    im2col.fields(v);
    chain.fields(v);
  }
};

/// What the kernels for tensor cores are made for.
struct SubpixelLogsumexpKernels {
  static constexpr int channels = 16;                      ///< K, of a place in a block
  static constexpr int group_places = 4, most_groups = 4;  ///< places in a block, in groups whose number is a power of 2
  static constexpr int width = 4,
                       columns = 32;  ///< of an output channel of the weight: at most so many, and a multiple of the width to a tap
};

/// Whether there are kernels for such an image, a weight (block * K, columns, 1...) and the current Numerics.
bool has_subpixel_logsumexp_kernels(const TensorType& image, const TensorType& weight, const SubpixelLogsumexpAttributes& attributes);

/// The calls in turn: im2col, the convolution and the chain, forward or backward.
Values subpixel_logsumexp_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes);
Values subpixel_logsumexp_backward_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes);

}  // namespace frit::ops
