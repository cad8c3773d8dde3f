#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace frit::ops {

// The statistics that every norm shares, fused ones included. A slice is the set of elements that are normalised together:
//   y = (x - mean) * rstd * weight + bias        rstd = 1 / sqrt(variance + eps), the variance biased
// Sums are of the differences from a pivot, in double: a slice far from zero keeps its digits, a constant slice gives x - mean = 0
// exactly, and no square overflows for float32 data. An infinity makes its whole slice NaN.

/// The sum of term(i), in double, for i in [0, n), in interleaved lanes: they vectorise, and have the same bits in whatever way they are
/// compiled.
template <class Term>
double sum_in_lanes(std::int64_t n, const Term& term) {
  constexpr std::size_t count = 16;
  std::array<double, count> lanes{};
  std::int64_t i = 0;
  for (; n - i >= static_cast<std::int64_t>(count); i += count) {
    for (std::size_t lane = 0; lane < count; ++lane) lanes[lane] += term(i + static_cast<std::int64_t>(lane));
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  for (std::size_t half = count / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// Mean and biased variance of `count` elements.
struct Moments {
  std::int64_t count = 0;
  double mean = 0;
  double variance = 0;
};

/// Of `count` elements, from the sums of their differences from a pivot, which is one of them, and of the squares of these. Rounding loses
/// about `count` units in the last place of the variance at worst.
inline Moments moments_of(std::int64_t count, double pivot, double sum, double square_sum) {
  if (count == 0) return {};
  const double n = static_cast<double>(count);
  const double mean_difference = sum / n;
  const double variance = square_sum / n - mean_difference * mean_difference;
  return {count, pivot + mean_difference, variance < 0 ? 0 : variance};
}

/// Gradients of slices of fewer elements are computed in double: their terms all but cancel, and what is left would be rounding.
inline constexpr std::int64_t least_elements_in_float = 32;

/// What normalising a slice takes, and what its gradient needs. Both are kept in double for every dtype: the mean rounded to float32
/// would cost all digits of data far from zero.
struct SliceStatistics {
  double mean = 0;
  double rstd = 0;
};

inline SliceStatistics statistics_of(const Moments& moments, double eps) { return {moments.mean, 1 / std::sqrt(moments.variance + eps)}; }

/// The sums over a slice, or a part of one, that its gradient is made of.
struct NormGradientSums {
  double gradient = 0;  ///< of g
  double product = 0;   ///< of g * (x - mean)

  NormGradientSums& operator+=(const NormGradientSums& other) {
    gradient += other.gradient;
    product += other.product;
    return *this;
  }
};

/// The gradient of a slice's elements: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), xhat = (x - mean) * rstd, written as
/// g * rstd + (x - mean) * slope + offset. `sums` are of the whole slice of n elements, g weighted.
struct NormInputGradient {
  double mean, rstd, slope, offset;

  NormInputGradient(const SliceStatistics& statistics, const NormGradientSums& sums, std::int64_t n)
      : mean(statistics.mean),
        rstd(statistics.rstd),
        slope(-rstd * rstd * rstd * (sums.product / static_cast<double>(n))),
        offset(-rstd * (sums.gradient / static_cast<double>(n))) {}

  double operator()(double g, double x) const { return g * rstd + (x - mean) * slope + offset; }
};

}  // namespace frit::ops
