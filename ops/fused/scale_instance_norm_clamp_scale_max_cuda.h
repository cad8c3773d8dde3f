#pragma once

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/fused/slice_moments_cuda.h"

namespace frit::ops {

/// ScaledInstance for the device: one channel of one sample in the kernel's own type.
template <class T>
struct InstanceMap {
  T scale, post_scale, rstd;
  SplitMean<T> mean;

  __device__ InstanceMap(T scale_, T post_scale_, double mean_, double rstd_)
      : scale(scale_), post_scale(post_scale_), rstd(static_cast<T>(rstd_)), mean(mean_) {}

  __device__ T centered(T x) const { return mean.centered(x, scale); }
  __device__ T normalized(T x) const { return centered(x) * rstd; }
};

}  // namespace frit::ops
