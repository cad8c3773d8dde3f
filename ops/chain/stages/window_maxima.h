#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "frit/ops/pool/pool_geometry.h"

namespace frit::ops {

// The maxima of a plane's windows and where in their windows they are, found as max_pool2d would: of equals the first, of NaNs the last,
// the padding never. First down the image's columns, for several rows of windows, then across the columns, so that every loop is long and
// becomes vector code.

/// Loops are rounded up to whole vectors where memory allows: the steps left over, one by one, would cost a mispredicted branch each.
inline constexpr std::int64_t maxima_vector = 16;
inline std::int64_t whole_vectors(std::int64_t count) { return (count + maxima_vector - 1) / maxima_vector * maxima_vector; }

/// Maxima side by side, and which elements of their windows they are: kernel row * kernel width + kernel column.
template <class T>
struct WindowMaxima {
  static constexpr std::int64_t capacity = 2048;
  static constexpr std::int32_t outside = std::int32_t{1} << 30;  ///< the number of what lies in the padding: after all others

  alignas(64) std::array<T, capacity + maxima_vector> value;
  alignas(64) std::array<std::int32_t, capacity + maxima_vector> number;

  void clear(std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      value[i] = -std::numeric_limits<T>::infinity();
      number[i] = outside;
    }
  }

  /// Places first, first + 1, ...: pointwise(x[0]), pointwise(x[1]), ...
  template <class Pointwise>
  void set_row(const Pointwise pointwise, const T* x, std::int64_t first, std::int64_t count, std::int32_t row_number) {
    T* const held = value.data() + first;
    for (std::int64_t i = 0; i < count; ++i) held[i] = pointwise(x[i]);
    std::fill_n(number.data() + first, count, row_number);
  }

  /// The same places: the larger of what is there and of elements that come later in their windows.
  template <class Pointwise>
  void take_row(const Pointwise pointwise, const T* x, std::int64_t first, std::int64_t count, std::int32_t row_number) {
    T* const held = value.data() + first;
    std::int32_t* const held_number = number.data() + first;
    for (std::int64_t i = 0; i < count; ++i) {
      const T offered = pointwise(x[i]);
      const bool wins = replaces_maximum(offered, held[i]);
      held[i] = wins ? offered : held[i];
      held_number[i] = wins ? row_number : held_number[i];
    }
  }

  /// Places 0, 1, ...: the largest of `kernel` columns, which are `dilation` apart and begin at 0, stride, 2 * stride, ...
  template <int known_stride>
  void reduce_columns(const WindowMaxima& columns, std::int64_t stride, std::int64_t dilation, std::int64_t kernel, std::int64_t count) {
    if constexpr (known_stride != 0) stride = known_stride;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto to = static_cast<std::size_t>(i), from = static_cast<std::size_t>(i * stride);
      value[to] = columns.value[from];
      number[to] = columns.number[from];
    }
    for (std::int64_t k = 1; k < kernel; ++k) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto to = static_cast<std::size_t>(i), from = static_cast<std::size_t>(i * stride + k * dilation);
        const T offered = columns.value[from], held = value[to];
        const std::int32_t offered_number = columns.number[from] + static_cast<std::int32_t>(k), held_number = number[to];
        const bool earlier = offered_number < held_number, offered_nan = offered != offered, held_nan = held != held;
        const bool wins = (offered > held) | ((offered == held) & earlier) | (offered_nan & (!held_nan | !earlier));
        value[to] = wins ? offered : held;
        number[to] = wins ? offered_number : held_number;
      }
    }
  }
};

/// How the windows of a plane are cut into tiles of some rows of windows, as many as a WindowMaxima holds the columns of; or where not even
/// one row fits, of a part of a row. Image axis 0 of the geometry is not looked at.
struct WindowTiling {
  std::int64_t stride, span;   ///< image columns from window to window, and that a window touches
  std::int64_t rows, windows;  ///< of a whole tile
  std::int64_t pitch;          ///< windows from row to row of a tile, of which those beyond `windows` have no meaning

  static constexpr std::int64_t capacity = WindowMaxima<float>::capacity;

  explicit WindowTiling(const PoolGeometry& pool) : stride(pool.stride[2]), span((pool.kernel[2] - 1) * pool.dilation[2] + 1) {
    windows = std::min(pool.output[2], most_windows());
    pitch = (columns_of(windows) + stride - 1) / stride;
    rows = windows < pool.output[2] ? 1 : std::max<std::int64_t>(1, capacity / (pitch * stride));
  }

  bool fits() const { return span <= capacity; }
  std::int64_t columns_of(std::int64_t window_count) const { return (window_count - 1) * stride + span; }
  std::int64_t most_windows() const { return (capacity - span) / stride + 1; }
};

}  // namespace frit::ops
