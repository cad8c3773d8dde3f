#pragma once

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/fused/slice_moments_cuda.h"

namespace frit::ops {

/// ScaledInstance for the device: the norm of input * scale in one channel of one sample as (x - reference) * slope + shift, and the factor
/// behind it. The reference is the mean of the input, rounded: the difference keeps the digits of data far from zero, and is 0 where all
/// elements are equal.
template <class T>
struct InstanceMap {
  T reference, slope, shift, post_scale;

  InstanceMap() = default;
  /// `input_mean` is that of the input, `mean` and `rstd` are of input * scale.
  __device__ InstanceMap(double input_mean, double mean, double rstd, T scale, T post_scale_)
      : reference(static_cast<T>(input_mean)), slope(static_cast<T>(static_cast<double>(scale) * rstd)), post_scale(post_scale_) {
    // Not fused, so that it cancels exactly where all elements are equal.
    shift = static_cast<T>((__dmul_rn(static_cast<double>(reference), static_cast<double>(scale)) - mean) * rstd);
  }

  __device__ T normalized(T x) const { return (x - reference) * slope + shift; }
};

}  // namespace frit::ops
