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

/// `count` sums of doubles at once, each in interleaved lanes: they vectorise, and have the same bits in whatever way they are compiled.
template <std::size_t count>
class LaneSums {
 public:
  /// Adds terms(i), a std::array<double, count>, for i in [0, n).
  template <class Terms>
  void add(std::int64_t n, const Terms& terms) {
    if (n < step) return add_tail(lanes_, 0, n, terms);
    Lanes sums = lanes_;  // a local copy can live in registers
    std::int64_t i = 0;
    for (; n - i >= step; i += step) {
      for (std::size_t lane = 0; lane < lane_count; ++lane) {
        const std::array<double, count> term = terms(i + static_cast<std::int64_t>(lane));
        for (std::size_t k = 0; k < count; ++k) sums[k][lane] += term[k];
      }
    }
    add_tail(sums, i, n, terms);
    lanes_ = sums;
  }

  std::array<double, count> totals() const {
    Lanes sums = lanes_;
    for (std::size_t half = lane_count / 2; half > 0; half /= 2) {
      for (std::size_t k = 0; k < count; ++k) {
        for (std::size_t lane = 0; lane < half; ++lane) sums[k][lane] += sums[k][lane + half];
      }
    }
    std::array<double, count> result;
    for (std::size_t k = 0; k < count; ++k) result[k] = sums[k][0];
    return result;
  }

 private:
  static constexpr std::size_t lane_count = 16;
  static constexpr std::int64_t step = lane_count;
  using Lanes = std::array<std::array<double, lane_count>, count>;

  template <class Terms>
  static void add_tail(Lanes& sums, std::int64_t i, std::int64_t n, const Terms& terms) {
    for (std::size_t lane = 0; i < n; ++i, ++lane) {
      const std::array<double, count> term = terms(i);
      for (std::size_t k = 0; k < count; ++k) sums[k][lane] += term[k];
    }
  }

  Lanes lanes_{};
};

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

/// What normalising a slice takes, and what its gradient needs. Both are kept in double for every dtype: the mean rounded to float32
/// would cost all digits of data far from zero.
struct SliceStatistics {
  double mean = 0;
  double rstd = 0;
};

/// The moments of a slice that comes in one or more runs.
class MomentSums {
 public:
  /// `pivot` is any element of the slice.
  explicit MomentSums(double pivot) : pivot_(pivot) {}

  /// Adds the run load(0) ... load(n - 1), elements of type float or double: `load` may apply a pointwise stage.
  template <class Load>
  void add(std::int64_t n, const Load& load) {
    count_ += n;
    sums_.add(n, [&, pivot = pivot_](std::int64_t i) {
      const double difference = static_cast<double>(load(i)) - pivot;
      return std::array<double, 2>{difference, difference * difference};
    });
  }

  Moments moments() const {
    const auto [sum, square_sum] = sums_.totals();
    return moments_of(count_, pivot_, sum, square_sum);
  }

 private:
  double pivot_;
  std::int64_t count_ = 0;
  LaneSums<2> sums_;
};

inline SliceStatistics statistics_of(const Moments& moments, double eps) { return {moments.mean, 1 / std::sqrt(moments.variance + eps)}; }

/// Of the slice load(0) ... load(n - 1).
template <class Load>
SliceStatistics slice_statistics(std::int64_t n, const Load& load, double eps) {
  MomentSums sums(n == 0 ? 0.0 : static_cast<double>(load(0)));
  sums.add(n, load);
  return statistics_of(sums.moments(), eps);
}

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
