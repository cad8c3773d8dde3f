#pragma once

#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/chain/stages/slice_moments.cuh"
#include "frit/ops/cuda/parameter.cuh"

namespace frit::ops {

/// ScaledInstance for the device: the norm of input * scale in one channel of one sample as (x - reference) * slope + shift, and the factor
/// after it. The reference is the mean of the input, rounded: the difference keeps the digits of data far from zero, and is 0 where all
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

/// An InstanceMap with the clamp and the factor after it, as saturate(x * slope + shift) * factor + offset: less work for each element.
/// Rows of C numbers each, so that those of neighbouring channels are read at once.
struct SaturatingMap {
  static constexpr int numbers = 4;
  float slope, shift, factor, offset;

  SaturatingMap() = default;
  __device__ SaturatingMap(const InstanceMap<float>& map, const Clamp<float>& clamp)
      : factor((clamp.high - clamp.low) * map.post_scale), offset(clamp.low * map.post_scale) {
    const float range = clamp.high - clamp.low;
    slope = map.slope / range;
    shift = fmaf(-map.reference, slope, (map.shift - clamp.low) / range);
  }
  /// Whether it keeps the digits, also of data around a reference that is not 0, and gives no NaN. Not where all elements are equal, so
  /// that all channels' zeros stay equal.
  __device__ bool replaces(const InstanceMap<float>& map, const Clamp<float>& clamp, double variance) const {
    constexpr float widest = 16, furthest = 8;
    const bool fits = clamp.low < clamp.high && clamp.high - clamp.low <= widest && variance > 0 && map.slope != 0;
    return fits && fabsf(map.reference * slope) <= furthest && isfinite(slope) && isfinite(shift) && isfinite(factor) && isfinite(offset);
  }
  __device__ float operator()(float x) const { return __saturatef(fmaf(x, slope, shift)) * factor + offset; }
};

/// What the statistics of the input become: those of input * scale, and the map that is then applied.
template <class Stored>
struct FinalizeInstances {
  using T = Computed<Stored>;

  std::int64_t channels;
  double eps;
  Parameter<Stored> scale, post_scale;
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
    maps[slice] = map(slice, moments, scale[c], post_scale[c], true);
  }
  /// Leaves out the first samples.
  void skip(std::int64_t samples) {
    if (means != nullptr) means += samples * channels;
    if (rstds != nullptr) rstds += samples * channels;
    maps += samples * channels;
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

  __device__ void take(T other_value, std::int32_t other) { *this = *this + ChannelMaximum{other_value, other}; }
  /// The maximum over `lanes` neighbouring threads, in all of them.
  __device__ void reduce(int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) *this = *this + cuda::shuffle_xor(*this, mask);
  }
};

/// Where a pixel's maximum goes: its value, the channel, and the input's element there. (N, pixels), or null.
template <class Stored, class Index>
struct MaximumOutputs {
  Stored* output;
  Index* argmax;
  Stored* argmax_input;

  FRIT_HOST_DEVICE bool has_argmax() const { return argmax != nullptr || argmax_input != nullptr; }
  void skip(std::int64_t pixels) {
    if (output != nullptr) output += pixels;
    if (argmax != nullptr) argmax += pixels;
    if (argmax_input != nullptr) argmax_input += pixels;
  }
  /// `element(channel)` is the input's.
  template <class Element>
  __device__ void write(std::int64_t place, const ChannelMaximum<Computed<Stored>>& best, const Element& element) const {
    if (output != nullptr) output[place] = convert<Stored>(best.value);
    if (argmax != nullptr) argmax[place] = static_cast<Index>(best.channel);
    if (argmax_input != nullptr) argmax_input[place] = element(best.channel);
  }
};

}  // namespace frit::ops
