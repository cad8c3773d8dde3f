#pragma once

#include "frit/ops/norm/norm.cuh"
#include "frit/ops/norm/slices.cuh"

namespace frit::ops {

/// Adds elements at(v, k), the first `present` of `vectors` of `width` each, to sums around the pivot: in their own type around their mean,
/// then moved to the pivot in double. Squares that float cannot hold are taken in double.
template <int vectors, int width, class At>
__device__ void add_moments(SumPair& sums, const At& at, int present, double pivot) {
  using C = decltype(at(0, 0));
  const C origin = at(0, 0);
  C sum = 0, squares = 0, largest = 0;
  const auto for_each = [&](const auto& body) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
#pragma unroll
      for (int k = 0; k < width; ++k) {
        if (v < present) body(at(v, k));
      }
    }
  };
  for_each([&](C x) {
    sum += x - origin;
    largest = fmax(largest, fabs(x - origin));
  });
  if (sizeof(C) == sizeof(float) && largest > 0 && !(largest > C(1e-15) && largest < C(1e15))) {
    for_each([&](C x) {
      const double difference = static_cast<double>(x) - pivot;
      sums = sums + SumPair{difference, difference * difference};
    });
    return;
  }
  const C mean = sum / static_cast<C>(present * width);
  for_each([&](C x) {
    const C difference = (x - origin) - mean;
    squares += difference * difference;
  });
  const double shift = static_cast<double>(origin) - pivot + static_cast<double>(mean), total = present * width * shift;
  sums = sums + SumPair{total, static_cast<double>(squares) + total * shift};
}

/// Over the rest of a thread's part of a slice; the last tile is left as it is.
template <class T, int width>
__device__ SumPair sum_moments(Tile<T, width>& tile, const T* slice, const DeviceGeometry& g, SliceIterator it, double pivot,
                               bool aligned) {
  SumPair sums{0, 0};
  while (it.inside()) {
    const int vectors = tile.load(slice, g, it, aligned);
    add_moments<Tile<T, width>::vectors, width>(sums, tile, vectors, pivot);
  }
  return sums;
}

__device__ inline double load(const RunningStatistic& running, std::int64_t i) {
  switch (running.dtype) {
    case DType::f64: return static_cast<const double*>(running.data)[i];
    case DType::f32: return static_cast<const float*>(running.data)[i];
    case DType::f16: return convert<double>(static_cast<const Half*>(running.data)[i]);
    default: return convert<double>(static_cast<const BFloat16*>(running.data)[i]);
  }
}

__device__ inline void store(const RunningStatistic& running, std::int64_t i, double value) {
  switch (running.dtype) {
    case DType::f64: static_cast<double*>(running.data)[i] = value; break;
    case DType::f32: static_cast<float*>(running.data)[i] = static_cast<float>(value); break;
    case DType::f16: static_cast<Half*>(running.data)[i] = convert<Half>(value); break;
    default: static_cast<BFloat16*>(running.data)[i] = convert<BFloat16>(value);
  }
}

template <class T>
struct ChannelWeights {
  const T *weight, *bias;  // (channels), or null

  __device__ NormCoefficients<Computed<T>> coefficients(const SliceStatistics& statistics, std::int64_t channel) const {
    return {statistics.mean, statistics.rstd, weight != nullptr ? convert<double>(weight[channel]) : 1,
            bias != nullptr ? convert<double>(bias[channel]) : 0};
  }
};

/// What becomes of the sums of a slice.
template <class T>
struct StatisticsRule {
  double *means, *rstds;  // (slices), or null
  CoefficientOutputs<Computed<T>> coefficients;
  ChannelWeights<T> weights;
  std::int64_t channels, slice_channels;
  RunningStatistics running;
  double eps, count, inverse_count;  ///< of a slice's elements; the inverse of 0 is 0

  __device__ SliceStatistics operator()(std::int64_t slice, const SumPair& sums, double pivot, bool writes) const {
    const double difference = sums.first * inverse_count, found = sums.second * inverse_count - difference * difference;
    const double variance = found < 0 ? 0 : found, mean = pivot + difference, rstd = rsqrt(variance + eps);
    if (writes) {
      write(slice, mean, rstd);
      if (running.mean.data != nullptr && count > 1) {
        update(running.mean, slice, mean);
        update(running.variance, slice, variance * (count / (count - 1)));
      }
    }
    return {mean, rstd};
  }

  __device__ void write(std::int64_t slice, double mean, double rstd) const {
    if (means != nullptr) means[slice] = mean;
    if (rstds != nullptr) rstds[slice] = rstd;
  }

  /// By all threads of a team.
  __device__ void write_coefficients(std::int64_t slice, const SliceStatistics& statistics, const cuda::Team& team) const {
    if (!coefficients.any()) return;
    const std::int64_t first = slice * slice_channels, channel = first % channels;
    for (std::int64_t i = team.rank(); i < slice_channels; i += team.size) {
      coefficients.write(first + i, weights.coefficients(statistics, channel + i));
    }
  }

 private:
  __device__ void update(const RunningStatistic& statistic, std::int64_t slice, double found) const {
    store(statistic, slice, (1 - running.momentum) * load(statistic, slice) + running.momentum * found);
  }
};

}  // namespace frit::ops
