#pragma once

#include "frit/ops/fused/group_norm_scale_max_pool_clamp_cuda.h"

namespace frit::ops {

/// What one channel of one sample, or a part of it, adds to the gradients.
struct ChannelSums {
  double gradient = 0, product = 0;  ///< of the gradient of the norm's result; of it times (x - mean)
  double scale = 0;

  /// A channel's part of its group's sums.
  __device__ ChannelSums weighted(double weight) const { return {weight * gradient, weight * product, 0}; }
  __device__ friend ChannelSums operator+(const ChannelSums& a, const ChannelSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.scale + b.scale};
  }
};

/// The input's gradient in one channel of one sample: (x - reference) * by_difference + offset, and more at the winners.
template <class T>
struct GroupGradient {
  GroupMap<T> map;
  T by_difference, offset;

  GroupGradient() = default;
  /// dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd, xhat = (x - mean) * rstd, where g is the weight times the gradient of the norm's
  /// result. `total` holds the sums of g over the group's `count` elements. Elsewhere than at the winners g is 0 times the factors.
  __device__ GroupGradient(const GroupMap<T>& map_, const ChannelSums& total, double rstd, double count) : map(map_) {
    const double elsewhere = 0 * static_cast<double>(map.slope) * static_cast<double>(map.scale);
    const double slope = -rstd * rstd * rstd * (total.product / count);
    by_difference = static_cast<T>(slope);
    offset = static_cast<T>(elsewhere * rstd - rstd * (total.gradient / count) - static_cast<double>(map.rest) * slope);
  }
};

/// What the kernels read.
template <class Stored, class Winner>
struct PoolGradientCall {
  using T = ComputeType<Stored>;

  Planes planes;
  Places places, gradient_places;  // of the input, of its gradient
  std::int64_t groups, group_channels;
  WindowAxis height, width;
  const Stored *gradient, *input;
  GroupParameters<Stored> parameters;
  Clamp<T> clamp;
  const Winner* winners;
  const double *means, *rstds;

  FRIT_HOST_DEVICE std::int64_t windows() const { return static_cast<std::int64_t>(height.output) * width.output; }
  __device__ GroupMap<T> map(std::int64_t plane) const {
    const std::int64_t slice = plane / group_channels;
    return parameters.map(plane % planes.channels, means[slice], rstds[slice]);
  }
  /// What a window whose maximum is x adds to its channel's sums, and the gradient that x gets.
  __device__ ChannelSums at_winner(const GroupMap<T>& map, T x, T window_gradient, T& x_gradient) const {
    const T normalized = map.normalized(x), passed = clamp.gradient(window_gradient, normalized * map.scale);
    const T entering = passed * map.scale;
    x_gradient = entering * map.slope;
    return {static_cast<double>(entering), static_cast<double>(entering * map.centered(x)), static_cast<double>(passed * normalized)};
  }
  /// The sums of a whole channel of a sample, given those over its winners: 0 elsewhere matters where it meets an infinity or NaN.
  __device__ static ChannelSums whole(const GroupMap<T>& map, const ChannelSums& winners_sums) {
    const double zero = 0 * static_cast<double>(map.scale);
    return winners_sums + ChannelSums{zero, zero, 0 * static_cast<double>(map.slope + map.shift)};
  }
  /// Leaves out the first samples.
  void skip(std::int64_t samples) {
    gradient += samples * planes.channels * windows();
    winners += samples * planes.channels * windows();
    input += samples * places.sample;
    means += samples * groups;
    rstds += samples * groups;
  }
};

}  // namespace frit::ops
