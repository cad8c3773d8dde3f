#pragma once

#include "frit/ops/norm/sums.cuh"

namespace frit::ops {

// What becomes of the sums of a norm's gradients, once they are added up: see finish_sums in sums.cuh.

/// The means over a slice whose sums came in parts, `parts` neighbouring ones of each weight.
template <class T>
struct FinishMeans {
  SumPair* means;    // (slices)
  const T* weights;  ///< or null
  NormGeometry g;
  std::int64_t parts;

  __device__ double weight(std::int64_t slice, std::int64_t p) const {
    if (weights == nullptr || g.weight_axis == WeightAxis::element) return 1;
    return convert<double>(weights[g.channel(slice, p / parts)]);
  }
  __device__ void operator()(std::int64_t slice, const SumPair& sums) const {
    const double inverse_count = 1 / static_cast<double>(g.slice_elements());
    means[slice] = {sums.first * inverse_count, sums.second * inverse_count};
  }
};

/// Both, where a slice is a channel.
template <class T>
struct FinishChannels {
  FinishParameters<T> parameters;
  FinishMeans<T> means;

  __device__ double weight(std::int64_t, std::int64_t) const { return 1; }
  __device__ void operator()(std::int64_t channel, const SumPair& sums) const {
    parameters(channel, sums);
    const double w = means.weight(channel, 0);
    means(channel, {w * sums.first, w * sums.second});
  }
};

/// Of channels of which several processes have parts.
template <class T>
struct FinishParts {
  FinishParameters<T> parameters;
  double *gradients, *products;  // (channels)

  __device__ double weight(std::int64_t, std::int64_t) const { return 1; }
  __device__ void operator()(std::int64_t channel, const SumPair& sums) const {
    parameters(channel, sums);
    gradients[channel] = sums.first;
    products[channel] = sums.second;
  }
};

}  // namespace frit::ops
