#pragma once

#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max_backward.cuh"

namespace frit::ops {

/// What the gradient of the convolution's result is made of.
template <class Stored>
struct GradientSource {
  const Stored* convolved;  // (N, pixels, K)
  GradientRules<float> rules;
  const std::uint8_t* argmax;  // (N, pixels)
  const float* more;           // likewise: what the maxima get in addition

  /// Without the samples before.
  __device__ GradientSource from(std::int64_t sample, int pixels) const {
    return {convolved + sample * pixels * ConvolutionInstanceNormMaxKernels::out_channels, rules, argmax + sample * pixels,
            more + sample * pixels};
  }
};

}  // namespace frit::ops
