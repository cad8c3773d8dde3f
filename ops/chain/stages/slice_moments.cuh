#pragma once

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/planes.cuh"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {

// The statistics of a chain: mean and variance of slices, each a sample's group of channels. A thread sums a few elements in their own type
// around the first of them; from there on the sums are doubles around the slice's first element, where adding them loses nothing.

/// Sums of elements less the first of their slice.
struct ShiftedSums {
  double sum = 0, squares = 0;

  __device__ friend ShiftedSums operator+(const ShiftedSums& a, const ShiftedSums& b) { return {a.sum + b.sum, a.squares + b.squares}; }
};

/// The sums of one thread, over few elements.
template <class T>
class ThreadSums {
 public:
  ThreadSums() = default;
  __device__ explicit ThreadSums(T pivot) : pivot_(pivot) {}

  __device__ T pivot() const { return pivot_; }
  __device__ void add(T x) {
    const T difference = x - pivot_;
    sum_ += difference;
    squares_ += difference * difference;
  }
  __device__ ShiftedSums shifted(std::int64_t count, T slice_pivot) const {
    const double shift = static_cast<double>(pivot_) - static_cast<double>(slice_pivot), n = static_cast<double>(count);
    const double sum = static_cast<double>(sum_);
    return {sum + n * shift, static_cast<double>(squares_) + shift * (2 * sum + n * shift)};
  }

 private:
  T pivot_ = 0, sum_ = 0, squares_ = 0;
};

struct DeviceMoments {
  double mean, variance;

  __device__ DeviceMoments(double known_mean, double known_variance) : mean(known_mean), variance(known_variance) {}
  /// `share` is 1 over the number of elements, or 0 if there are none.
  __device__ DeviceMoments(const ShiftedSums& sums, double pivot, double share) {
    const double difference = sums.sum * share;
    mean = pivot + difference;
    variance = sums.squares * share - difference * difference;
    variance = variance < 0 ? 0 : variance;
  }
};

/// The scratch memory of a chain whose statistics a norm finds, in bytes: the norm's own, the statistics and a map for each plane.
struct StatisticsScratch {
  ScratchParts all;
  std::size_t means, rstds, maps;

  StatisticsScratch(std::size_t norm_bytes, std::int64_t slices, std::int64_t planes, std::size_t map_bytes) {
    all.add(1, norm_bytes);
    means = all.add(slices, sizeof(double));
    rstds = all.add(slices, sizeof(double));
    maps = all.add(planes, map_bytes);
  }
};

inline double share_of_each(std::int64_t count) { return count == 0 ? 0 : 1 / static_cast<double>(count); }

}  // namespace frit::ops
