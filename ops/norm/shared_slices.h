#pragma once

#include "frit/ops/norm/norm_core.h"

namespace frit::ops {

/// Two numbers of each slice, as every process has them.
struct ProcessPairs {
  const double* numbers;  // (processes, 2, slices)
  std::int64_t processes, slices;

  FRIT_HOST_DEVICE double first(std::int64_t process, std::int64_t slice) const { return numbers[2 * process * slices + slice]; }
  FRIT_HOST_DEVICE double second(std::int64_t process, std::int64_t slice) const { return numbers[(2 * process + 1) * slices + slice]; }
};

/// The moments of a slice of which each process has `count` elements, whose mean and 1 / sqrt(variance) the numbers are.
FRIT_HOST_DEVICE inline Moments moments_of_all(const ProcessPairs& pairs, std::int64_t slice, std::int64_t count) {
  const double share = 1 / static_cast<double>(pairs.processes), base = pairs.first(0, slice);
  double difference = 0, within = 0, between = 0;
  for (std::int64_t process = 0; process < pairs.processes; ++process) {
    const double rstd = pairs.second(process, slice);
    difference += share * (pairs.first(process, slice) - base);
    within += share / (rstd * rstd);
  }
  for (std::int64_t process = 0; process < pairs.processes; ++process) {
    const double from_mean = pairs.first(process, slice) - base - difference;
    between += share * from_mean * from_mean;
  }
  return {count * pairs.processes, base + difference, within + between};
}

/// The sums of a slice, where the numbers are those of its parts.
FRIT_HOST_DEVICE inline NormGradientSums sums_of_all(const ProcessPairs& pairs, std::int64_t slice) {
  NormGradientSums sums;
  for (std::int64_t process = 0; process < pairs.processes; ++process) {
    sums.gradient += pairs.first(process, slice);
    sums.product += pairs.second(process, slice);
  }
  return sums;
}

/// The slices of a call of a batch norm, each a part of one that the processes of a communicator have together, and what these exchange of
/// them, in the first bytes of the call's scratch memory.
class SharedSlices {
 public:
  /// `image`: the input that is normalised.
  SharedSlices(const KernelContext& call, std::size_t image);
  static std::size_t bytes(const InferContext& call, std::size_t image);

  /// The call with the scratch memory that is left.
  KernelContext rest_of(const KernelContext& call) const;
  std::int64_t processes() const { return processes_; }
  /// Of this process, for gather() to give to all.
  double* own() const { return own_; }  // (2, slices)
  void set_own(std::int64_t slice, double first, double second) const {
    own_[slice] = first;
    own_[slices_ + slice] = second;
  }
  /// In the order of the call's stream. All processes call it.
  ProcessPairs gather() const;

 private:
  std::int64_t communicator_, processes_, slices_;
  double *all_, *own_;  // own_ is a part of it
  Device device_;
  CUstream_st* stream_;
};

/// The kernel with scratch memory for its call's SharedSlices.
Kernel with_shared_slices(Kernel kernel, std::size_t image);

}  // namespace frit::ops
