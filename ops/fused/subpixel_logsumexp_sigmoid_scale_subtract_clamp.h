#pragma once

#include "frit/ops/convolution/subpixel.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/in_turn.h"

namespace frit::ops {

// logsumexp_sigmoid_scale_subtract_clamp of a transposed convolution in sub-pixel form (see subpixel.h). What the convolution gives need not
// be stored, and neither need its gradient: the backward operator computes both anew.

struct SubpixelLogsumexpAttributes {
  PackTapsAttributes pack;
  LogsumexpSigmoidScaleSubtractClampAttributes chain;  ///< in blocks

  void fields(FieldVisitor& v) {
    pack.fields(v);
    chain.fields(v);
  }
};

/// Whether there are kernels for tensor cores for such an image, a weight (block * K, columns, 1...) and the current Numerics.
bool has_subpixel_logsumexp_kernels(const TensorType& image, const TensorType& weight, const SubpixelLogsumexpAttributes& attributes);

/// The calls in turn: pack_taps, the convolution and the chain, forward or backward.
InTurn subpixel_logsumexp_in_turn(std::span<const TensorType> inputs, const Attributes& attributes);
InTurn subpixel_logsumexp_backward_in_turn(std::span<const TensorType> inputs, const Attributes& attributes);

}  // namespace frit::ops
