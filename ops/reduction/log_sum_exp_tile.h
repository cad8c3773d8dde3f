#pragma once

#include <cmath>
#include <limits>

#include "frit/ops/cpu/vector_math.h"
#include "frit/ops/operator/value.h"
#include "frit/ops/reduction/reduce.h"

namespace frit::ops {

/// Maxima and sums of half inputs are kept as f32, so that the weights made from them still sum to 1.
inline DType statistics_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }
/// Halves are taken back as well.
inline bool are_statistics(const TensorType& type, const Shape& shape, DType dtype) {
  return type.shape == shape && (type.dtype == statistics_dtype(dtype) || type.dtype == dtype);
}

/// Of elements side by side: -inf at least, never NaN.
template <class T>
T greatest_of(const T* x, std::int64_t count) {
  T lanes[tile_lanes];
  std::fill_n(lanes, tile_lanes, -std::numeric_limits<T>::infinity());
  std::int64_t i = 0;
  for (; i + tile_lanes <= count; i += tile_lanes) {
    for (int lane = 0; lane < tile_lanes; ++lane) lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  }
  for (int lane = 0; i + lane < count; ++lane) lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  fold_lanes([&](int a, int b) { lanes[a] = lanes[b] > lanes[a] ? lanes[b] : lanes[a]; });
  return lanes[0];
}

/// The sum of exp(x - shift) of elements side by side; terms(first, exponentials, count) sees them some at a time.
template <class T, class Terms>
double sum_of_exponentials(const T* x, std::int64_t count, T shift, const Terms& terms) {
  double lanes[tile_lanes] = {};
  for (std::int64_t first = 0; first < count; first += tile_lanes) {
    const int width = static_cast<int>(std::min<std::int64_t>(count - first, tile_lanes));
    T exponentials[tile_lanes];
    const auto take = [&](auto size) {
      for (int i = 0; i < size; ++i) exponentials[i] = vector_exp(x[first + i] - shift);
      for (int i = 0; i < size; ++i) lanes[i] += static_cast<double>(exponentials[i]);
    };
    width == tile_lanes ? take(std::integral_constant<int, tile_lanes>{}) : take(width);
    terms(first, exponentials, width);
  }
  fold_lanes([&](int a, int b) { lanes[a] += lanes[b]; });
  return lanes[0];
}

/// The running maximum (-inf at first, never NaN) and the sum of exp(x - maximum). An infinite maximum is not subtracted, so that a column
/// of -inf has the sum 0, one with +inf the sum +inf, and one with NaN the sum NaN.
template <class T>
struct LogSumExpTile {
  T maximum[tile_width];
  double sum[tile_width];

  static T shift_of(T maximum) { return std::isinf(maximum) ? T{0} : maximum; }
  /// The factor of a sum whose maximum is raised; in double, as it may be raised often.
  static double rescaling(T from, T to) {
    if (from == to) return 1;
    return std::isinf(from) ? 0 : std::exp(static_cast<double>(from) - static_cast<double>(to));
  }

  void clear(int width) {
    std::fill_n(maximum, width, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, width, 0.0);
  }
  /// Some rows at a time: their maximum first, then their exponentials while they are still in the cache.
  void add(const Rows& rows, const T* x) {
    constexpr std::int64_t rows_in_cache = 64;
    for (std::int64_t row = 0; row < rows.count; row += rows_in_cache) {
      add_rows(x + rows.offset + row * rows.stride, rows.stride, std::min(rows_in_cache, rows.count - row), rows.width);
    }
  }
  /// Column 0, of elements side by side.
  void take_line(const T* x, std::int64_t count) {
    maximum[0] = greatest_of(x, count);
    sum[0] = sum_of_exponentials(x, count, shift_of(maximum[0]), [](std::int64_t, const T*, int) {});
  }
  void merge(const LogSumExpTile& later, int width) {
    for (int i = 0; i < width; ++i) {
      const T greatest = std::max(maximum[i], later.maximum[i]);
      sum[i] = sum[i] * rescaling(maximum[i], greatest) + later.sum[i] * rescaling(later.maximum[i], greatest);
      maximum[i] = greatest;
    }
  }
  void fold() {
    T greatest[tile_lanes], factor[tile_lanes];
    std::copy_n(maximum, tile_lanes, greatest);
    fold_lanes([&](int a, int b) { greatest[a] = greatest[a] > greatest[b] ? greatest[a] : greatest[b]; });
    const T shift = shift_of(greatest[0]);
    for (int i = 0; i < tile_lanes; ++i) factor[i] = vector_exp(maximum[i] - shift);
    for (int i = 0; i < tile_lanes; ++i) sum[i] *= static_cast<double>(factor[i]);
    fold_lanes([&](int a, int b) { sum[a] += sum[b]; });
    maximum[0] = greatest[0];
  }

 private:
  void add_rows(const T* x, std::int64_t stride, std::int64_t count, int width) {
    T shift[tile_width], terms[tile_width];
    std::copy_n(maximum, width, shift);
    for (std::int64_t row = 0; row < count; ++row) {
      const T* const line = x + row * stride;
      for (int i = 0; i < width; ++i) maximum[i] = line[i] > maximum[i] ? line[i] : maximum[i];
    }
    for (int i = 0; i < width; ++i) {
      sum[i] *= rescaling(shift[i], maximum[i]);
      shift[i] = shift_of(maximum[i]);
    }
    for (std::int64_t row = 0; row < count; ++row) {
      const T* const line = x + row * stride;
      // Two loops, as one that widens its results is not made into vector code by GCC 12.
      for (int i = 0; i < width; ++i) terms[i] = vector_exp(line[i] - shift[i]);
      for (int i = 0; i < width; ++i) sum[i] += static_cast<double>(terms[i]);
    }
  }
};

/// finish(tile, block) for each block; see `reduce`.
template <class T, class Finish>
void reduce_log_sum_exp(const ReductionPlan& plan, std::span<std::byte> scratch, const T* x, const Finish& finish) {
  if (!plan.has_lines()) {
    return reduce<LogSumExpTile<T>>(
        plan, scratch, [x](auto& tile, const Rows& rows) { tile.add(rows, x); }, finish);
  }
  parallel_for(plan.blocks(), plan.block_grain(), [&](std::int64_t begin, std::int64_t end) {
    LogSumExpTile<T> tile;
    for (std::int64_t b = begin; b < end; ++b) {
      const Block block = plan.block(b);
      tile.take_line(x + block.offset, plan.count());
      finish(tile, block);
    }
  });
}

}  // namespace frit::ops
