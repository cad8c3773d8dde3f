#pragma once

#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/operator/in_turn.h"

namespace frit::ops {

// scale_instance_norm_clamp_scale_max of a convolution whose stride and dilation are 1. The forward operator's results are those of the
// chain and what the convolution gives, which inference does not need; the gradient of that is not stored.

struct ConvolutionInstanceNormMaxAttributes {
  Dims padding = {};  ///< an image axis, on both sides
  ScaleInstanceNormClampScaleMaxAttributes chain = {};

  void fields(FieldVisitor& v) {
    v.field("padding", padding);
    chain.fields(v);
  }
  ConvolutionOptions options() const { return {.padding = padding}; }
};

/// What the kernels are made for.
struct ConvolutionInstanceNormMaxKernels {
  static constexpr std::int64_t out_channels = 16;  ///< channels of the output
  static constexpr std::int64_t channels = 4;       ///< of the image, at most
  static constexpr std::int64_t taps = 28;          ///< elements of the kernel, at most
  static constexpr std::int64_t strict_side = 3;    ///< without tensor cores: of the kernel's last two axes
};

/// Whether there are kernels for such an image, a weight (K, C, kernel...) and the current Numerics. The forward one also wants room for a
/// sample's image in the shared memory of a cluster of blocks, among others; where there is none, the calls run in turn.
bool has_convolution_instance_norm_max_kernels(const TensorType& image, const TensorType& weight, const Dims& padding);

/// The kernel of a convolution that makes an image of another with some padding.
Dims kernel_between(const Shape& image, const Shape& convolved, const Dims& padding);

/// The calls in turn: the convolution and the chain, forward or backward.
Values convolution_instance_norm_max_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes);
Values convolution_instance_norm_max_backward_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes);

}  // namespace frit::ops
