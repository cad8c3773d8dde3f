#pragma once

#include <cmath>
#include <limits>

#include "frit/ops/cpu/vector_math.h"
#include "frit/ops/operator/value.h"
#include "frit/ops/reduction/lines.h"
#include "frit/ops/reduction/reduce.h"

namespace frit::ops {

/// Maxima and sums of halves are kept as float32, so that the weights made from them still sum to 1; halves are taken back as well.
inline bool are_statistics(const TensorType& type, const Shape& shape, DType dtype) {
  return type.shape == shape && (type.dtype == computed_dtype(dtype) || type.dtype == dtype);
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
  /// And exp(x - shift) is kept, if wanted. So few terms are summed as they are.
  template <bool kept>
  void take(ShortLines<T>& lines) {
    using V = simd::Vector<T>;
    constexpr int lanes = simd::lanes<T>, vectors = columns_together / lanes;
    static_assert(columns_together % lanes == 0 && tile_width % columns_together == 0);
    const std::int64_t count = lines.rows.count;
    for (int first = 0; first < lines.rows.width; first += columns_together) {
      V greatest[vectors], shift[vectors], sums[vectors] = {};
      std::fill_n(greatest, vectors, -std::numeric_limits<T>::infinity() - V{});
      for (std::int64_t row = 0; row < count; ++row) {
        for (int v = 0; v < vectors; ++v) greatest[v] = simd::max(simd::load(lines.row(row) + first + v * lanes), greatest[v]);
      }
      for (int v = 0; v < vectors; ++v) {
        simd::store(maximum + first + v * lanes, greatest[v]);
        shift[v] = greatest[v] - greatest[v] == 0 ? greatest[v] : V{};
      }
      for (std::int64_t row = 0; row < count; ++row) {
        V terms[vectors];
        for (int v = 0; v < vectors; ++v) terms[v] = simd::load(lines.row(row) + first + v * lanes) - shift[v];
        simd::exp<T>(terms);
        for (int v = 0; v < vectors; ++v) {
          if constexpr (kept) simd::store(lines.row(row) + first + v * lanes, terms[v]);
          sums[v] += terms[v];
        }
      }
      T rounded[columns_together];
      for (int v = 0; v < vectors; ++v) simd::store(rounded + v * lanes, sums[v]);
      std::copy_n(rounded, columns_together, sum + first);
    }
  }
  /// Lines of elements, one after another and each a column; several are of one tile's width at most. exp(x - shift) is kept, if wanted.
  void take_lines(const T* x, std::int64_t count, int lines, T* kept) {
    T shift[tile_width], local[tile_width];
    for (int line = 0; line < lines; ++line) {
      maximum[line] = maximum_of_line(x + line * count, count);
      sum[line] = 0;
      std::fill_n(shift + line * count, std::min<std::int64_t>(count, tile_width), shift_of(maximum[line]));
    }
    for (std::int64_t first = 0; first < lines * count; first += tile_width) {
      const std::int64_t width = std::min<std::int64_t>(tile_width, lines * count - first);
      T* const terms = kept != nullptr ? kept + first : local;
      exponentials(x + first, shift, width, terms);
      for (int line = 0; line < lines; ++line) sum[line] += sum_of_line<double>(terms + line * count, std::min<std::int64_t>(count, width));
    }
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
      exponentials(x + row * stride, shift, width, terms);
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
  if (plan.has_short_lines()) {
    return plan.for_each_short_lines([&](const Block& lines) {
      ShortLines<T> columns(x + lines.offset, plan.count(), lines.width);
      LogSumExpTile<T> tile;
      tile.template take</*kept=*/false>(columns);
      finish(tile, lines);
    });
  }
  plan.for_each_lines([&](const Block& lines) {
    LogSumExpTile<T> tile;
    tile.take_lines(x + lines.offset, plan.count(), lines.width, nullptr);
    finish(tile, lines);
  });
}

}  // namespace frit::ops
