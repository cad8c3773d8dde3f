#pragma once

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_cuda.h"

namespace frit::ops {

/// What one channel of one sample, or a part of it, adds to the gradients.
struct InstanceSums {
  double gradient = 0, product = 0;  ///< of the gradient that enters the norm; of it times the norm's result
  double post_scale = 0;

  __device__ friend InstanceSums operator+(const InstanceSums& a, const InstanceSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.post_scale + b.post_scale};
  }
};

/// What one pixel adds to the gradients of its winning channel.
template <class T>
struct PixelTerms {
  T entering, product, clamped_product;
  std::int32_t channel;
};

/// The input's gradient in one channel of one sample: (x - map.reference) * by_difference + offset + entering * by_entering.
template <class T>
struct InstanceGradient {
  InstanceMap<T> map;
  T by_difference, offset, by_entering;

  __device__ T spread(T x) const { return (x - map.reference) * by_difference + offset; }
};

/// What the kernels read.
template <class Stored, class Winner>
struct InstanceGradientCall {
  using T = ComputeType<Stored>;

  Planes planes;
  Places places, gradient_places;  // of the input, of its gradient
  const Stored *gradient, *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  const Winner* winners;
  const double *means, *rstds;

  __device__ InstanceMap<T> map(std::int64_t n, std::int64_t c) const {
    const std::int64_t slice = n * planes.channels + c;
    return map_of(means[slice], rstds[slice], convert<T>(scale[c]), convert<T>(post_scale[c]));
  }
  __device__ static InstanceMap<T> map_of(double mean, double rstd, T s, T post) {
    return {s == 0 ? 0 : mean / static_cast<double>(s), mean, rstd, s, post};
  }
  /// Leaves out the first samples.
  void skip(std::int64_t samples) {
    gradient += samples * planes.pixels;
    input += samples * places.sample;
    winners += samples * planes.pixels;
    means += samples * planes.channels;
    rstds += samples * planes.channels;
  }

  /// The gradient that enters the norm. It is 0 but at the winner, which matters where that meets an infinity or NaN.
  __device__ T entering(const InstanceMap<T>& map, T pixel_gradient, bool wins, T normalized) const {
    return clamp.gradient((wins ? pixel_gradient : T(0)) * map.post_scale, normalized);
  }
};

/// A warp's sum over a channel of entering * (x - mean of x), for a scale of 0, where the sums over the winners do not tell it; else 0.
template <class Stored, class Winner>
__device__ double unscaled_product(const InstanceGradientCall<Stored, Winner>& call, const InstanceMap<ComputeType<Stored>>& map,
                                   std::int64_t n, std::int64_t c, int lane) {
  using T = ComputeType<Stored>;
  if (convert<T>(call.scale[c]) != 0 || call.planes.pixels == 0) return 0;
  const Stored* const x = call.input + call.places(n, c, 0);
  const double first = static_cast<double>(convert<T>(x[0]));
  double difference_sum = 0, gradient_sum = 0, product = 0;
  for (std::int64_t p = lane; p < call.planes.pixels; p += cuda::warp_size) {
    const std::int64_t place = n * call.planes.pixels + p;
    const T element = convert<T>(x[p * call.places.pixel]);
    const bool wins = call.winners[place] == static_cast<Winner>(c);
    const double difference = static_cast<double>(element) - first;
    const double entering = static_cast<double>(call.entering(map, convert<T>(call.gradient[place]), wins, map.normalized(element)));
    difference_sum += difference;
    gradient_sum += entering;
    product += entering * difference;
  }
  const double mean = cuda::warp_reduce(difference_sum) / static_cast<double>(call.planes.pixels);
  return cuda::warp_reduce(product) - cuda::warp_reduce(gradient_sum) * mean;
}

/// The rule of the input's gradient, dx = (entering - mean(entering) - normalized * mean(entering * normalized)) * rstd * scale, given the
/// sums over the sample. Elsewhere than at the winners `entering` is 0 times a factor, which matters where that is not finite.
template <class T>
__device__ InstanceGradient<T> instance_gradient(const InstanceMap<T>& map, const InstanceSums& total, T scale, double rstd,
                                                 double pixels) {
  const double slope = static_cast<double>(scale) * rstd, zero = 0 * static_cast<double>(map.post_scale);
  const double by_normalized = -slope * ((total.product + zero) / pixels);
  return {map, static_cast<T>(static_cast<double>(map.slope) * by_normalized),
          static_cast<T>(static_cast<double>(map.shift) * by_normalized - slope * ((total.gradient + zero) / pixels)),
          static_cast<T>(slope)};
}

/// What a channel of a sample adds to the gradients of the scales. The norm undoes the scale but for eps: the sum of dz * x, where
/// z = x * scale, is eps rstd^3 times that of entering * (x - mean of x); `unscaled` is that one for a scale of 0.
template <class T>
__device__ InstanceSums scale_sums(const InstanceMap<T>& map, InstanceSums total, double unscaled, T scale, double rstd, double eps) {
  const double zero = 0 * static_cast<double>(map.post_scale), factor = static_cast<double>(scale);
  total.product = eps * rstd * rstd * (scale == 0 ? rstd * unscaled : (total.product + zero) / factor);
  total.post_scale += 0 * rstd;
  return total;
}

}  // namespace frit::ops
