#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "frit/ops/cpu/simd.h"

namespace frit::ops {
namespace simd {

/// Element i of the result is that of `a` where bit `step` of i is clear, or the element `step` before in `b`; and the other half.
template <int step, class V, int... i>
inline std::pair<V, V> exchange(V a, V b, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return {__builtin_shufflevector(a, b, ((i & step) != 0 ? n + i - step : i)...),
          __builtin_shufflevector(a, b, ((i & step) != 0 ? n + i : i + step)...)};
}

/// Transposes a square of vectors by exchanging its off-diagonal quarters, those of each quarter, and so on.
template <int step = 1, class V, int n>
inline void transpose(V (&rows)[n]) {
  if constexpr (step < n) {
#pragma GCC unroll 16
    for (int row = 0; row < n; ++row) {
      if ((row & step) != 0) continue;
      const auto [low, high] = exchange<step>(rows[row], rows[row + step], std::make_integer_sequence<int, n>());
      rows[row] = low;
      rows[row + step] = high;
    }
    transpose<2 * step>(rows);
  }
}

/// Element i of the result is the largest of rows[i], none of which is NaN.
template <int step = 1, class V, int n>
inline V maxima_of_rows(V (&rows)[n]) {
#pragma GCC unroll 16
  for (int row = 0; row < n; row += 2 * step) {
    const auto [low, high] = exchange<step>(rows[row], rows[row + step], std::make_integer_sequence<int, n>());
    rows[row] = high > low ? high : low;
  }
  if constexpr (2 * step < n) return maxima_of_rows<2 * step>(rows);
  return rows[0];
}

}  // namespace simd

/// to[j * to_step + i] = from[i * from_step + j] for i in [0, rows) and j in [0, columns), a square of vectors at a time, or of bytes one.
template <class T>
void transpose(const T* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, T* to, std::int64_t to_step) {
  constexpr std::int64_t n = simd::lanes<T>;
  for (std::int64_t row = 0; row < rows; row += n) {
    for (std::int64_t column = 0; column < columns; column += n) {
      const T* const in = from + row * from_step + column;
      T* const out = to + column * to_step + row;
      if (sizeof(T) > 1 && row + n <= rows && column + n <= columns) {
        simd::Vector<T> square[n];
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) square[i] = simd::load(in + i * from_step);
        simd::transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) simd::store(out + i * to_step, square[i]);
        continue;
      }
      for (std::int64_t i = 0; i < std::min(n, rows - row); ++i) {
        for (std::int64_t j = 0; j < std::min(n, columns - column); ++j) out[j * to_step + i] = in[i * from_step + j];
      }
    }
  }
}

}  // namespace frit::ops
