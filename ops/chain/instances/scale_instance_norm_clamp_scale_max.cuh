#pragma once

#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/chain/stages/chain_outputs.cuh"
#include "frit/ops/chain/stages/slice_moments.cuh"
#include "frit/ops/cuda/parameter.cuh"

namespace frit::ops {

/// The norm of input * scale in one channel of one sample as (x - reference) * slope + shift, and the factor after it. The reference is the
/// mean of the input, rounded: the difference keeps the digits of data far from zero, and is 0 where all elements are equal.
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

/// What the statistics of the input become: those of input * scale, and the map that is then applied.
template <class Stored>
struct FinalizeInstances {
  using T = Computed<Stored>;

  std::int64_t channels;
  double eps;
  Parameter<Stored> scale, post_scale;
  StatisticsOutputs statistics;

  /// The parameters are inputs from `first` on.
  FinalizeInstances(const KernelContext& call, std::int64_t channels_, double eps_, std::size_t first)
      : channels(channels_),
        eps(eps_),
        scale(call.inputs[first]),
        post_scale(call.inputs[first + 1]),
        statistics(StatisticsOutputs::of(call)) {}

  __device__ InstanceMap<T> map(std::int64_t slice, const DeviceMoments& moments, T s, T post, bool writes) const {
    const double factor = isfinite(s) ? static_cast<double>(s) : nan("");
    const double mean = __dmul_rn(moments.mean, factor), rstd = rsqrt(moments.variance * factor * factor + eps);
    if (writes) statistics.write(slice, mean, rstd);
    return {moments.mean, mean, rstd, s, post};
  }
};

/// A pixel's largest value so far and its channel. The first of equal values wins, and the first NaN over everything.
template <class T>
struct ChannelMaximum {
  T value = -std::numeric_limits<T>::infinity();
  std::int32_t channel = 0;

  /// Of a later channel.
  __device__ void take(T other, std::int32_t other_channel) {
    const bool wins = (other > value) | ((other != other) & (value == value));
    value = wins ? other : value;
    channel = wins ? other_channel : channel;
  }
};

}  // namespace frit::ops
