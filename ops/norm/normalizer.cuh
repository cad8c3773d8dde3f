#pragma once

#include "frit/ops/cuda/computed.cuh"

namespace frit::ops {

// What all passes of the norms compute with.

/// Two sums over a slice, or a part of one: of x - pivot and of its square, or of g and of g * xhat.
struct SumPair {
  double first, second;

  __device__ friend SumPair operator+(const SumPair& a, const SumPair& b) { return {a.first + b.first, a.second + b.second}; }
};

/// xhat. The mean in two parts keeps the digits of data far from zero; of a constant slice, xhat is exactly 0.
template <class C>
struct Normalizer {
  C mean, rest, rstd;

  Normalizer() = default;
  __device__ Normalizer(double mean_, double rstd_)
      : mean(static_cast<C>(mean_)), rest(static_cast<C>(mean_ - static_cast<double>(mean))), rstd(static_cast<C>(rstd_)) {}
  __device__ C operator()(C x) const { return ((x - mean) - rest) * rstd; }
};

/// What the sums of g and g * xhat of a channel are.
template <class T>
struct FinishParameters {
  T *weight_gradient, *bias_gradient;  // (channels), or null

  __device__ double weight(std::int64_t, std::int64_t) const { return 1; }
  __device__ void operator()(std::int64_t channel, const SumPair& sums) const {
    if (weight_gradient != nullptr) weight_gradient[channel] = convert<T>(sums.second);
    if (bias_gradient != nullptr) bias_gradient[channel] = convert<T>(sums.first);
  }
};

}  // namespace frit::ops
