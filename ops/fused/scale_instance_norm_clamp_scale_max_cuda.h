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

/// What the statistics of the input become: those of input * scale, and the map that is then applied.
template <class Stored>
struct CloseInstances {
  using T = ComputeType<Stored>;

  std::int64_t channels;
  double eps;
  const Stored *scale, *post_scale;
  double *means, *rstds;  // (N, C), or null
  InstanceMap<T>* maps;   // (N, C)

  __device__ InstanceMap<T> map(std::int64_t slice, const DeviceMoments& moments, T s, T post, bool writes) const {
    const double factor = isfinite(s) ? static_cast<double>(s) : nan("");
    const double mean = __dmul_rn(moments.mean, factor), rstd = rsqrt(moments.variance * factor * factor + eps);
    if (writes && means != nullptr) means[slice] = mean;
    if (writes && rstds != nullptr) rstds[slice] = rstd;
    return {moments.mean, mean, rstd, s, post};
  }
  __device__ void operator()(std::int64_t slice, const DeviceMoments& moments) const {
    const std::int64_t c = slice % channels;
    maps[slice] = map(slice, moments, convert<T>(scale[c]), convert<T>(post_scale[c]), true);
  }
};

/// A pixel's largest value so far and its channel. The first of equal values wins, and the first NaN over everything.
template <class T>
struct ChannelMaximum {
  T value = -std::numeric_limits<T>::infinity();
  std::int32_t channel;

  __device__ friend ChannelMaximum operator+(const ChannelMaximum& a, const ChannelMaximum& b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value, earlier = a.channel < b.channel;
    const bool equal = (a.value == b.value) | (a_nan & b_nan);
    const bool wins = equal ? earlier : (a_nan | ((a.value > b.value) & !b_nan));
    return wins ? a : b;
  }

  /// A value of a later channel.
  __device__ void take(T later_value, std::int32_t later) { *this = *this + ChannelMaximum{later_value, later}; }
  /// The maximum over `lanes` neighbouring threads, in all of them.
  __device__ void reduce(int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) *this = *this + cuda::shuffle_xor(*this, mask);
  }
};

/// Where a pixel's maximum goes.
template <class Stored, class Winner>
struct MaximumOutputs {
  Stored* output;   // (N, pixels), or null
  Winner* winners;  // likewise

  __device__ void write(std::int64_t place, const ChannelMaximum<ComputeType<Stored>>& best) const {
    if (output != nullptr) output[place] = convert<Stored>(best.value);
    if (winners != nullptr) winners[place] = static_cast<Winner>(best.channel);
  }
};

}  // namespace frit::ops
