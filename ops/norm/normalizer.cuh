#pragma once

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

}  // namespace frit::ops
