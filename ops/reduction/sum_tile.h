#pragma once

#include <type_traits>

#include "frit/ops/reduction/reduce.h"

namespace frit::ops {

/// Running sums.
template <class Accumulator>
struct SumTile {
  Accumulator sum[tile_width];

  void clear(int width) { std::fill_n(sum, width, Accumulator{0}); }
  void merge(const SumTile& later, int width) {
    for (int i = 0; i < width; ++i) sum[i] += later.sum[i];
  }
  void fold() {
    fold_lanes([&](int a, int b) { sum[a] += sum[b]; });
  }
  /// element(offset) gives each term.
  template <class Element>
  void add(const Rows& rows, const Element& element) {
    const auto add_rows = [&](auto width) {
      for (std::int64_t row = 0; row < rows.count; ++row) {
        const std::int64_t offset = rows.offset + row * rows.stride;
        for (int i = 0; i < width; ++i) sum[i] += element(offset + i);
      }
    };
    if (rows.width == tile_lanes) {
      add_rows(std::integral_constant<int, tile_lanes>{});  // long runs: no loop tail
    } else if (rows.stride == rows.width && rows.width < tile_width / 2 && rows.count * rows.width >= 2 * tile_width) {
      add_short_rows(rows, element);
    } else {
      add_rows(rows.width);
    }
  }

 private:
  /// Rows that follow each other, several as a long one.
  template <class Element>
  void add_short_rows(const Rows& rows, const Element& element) {
    Accumulator sums[tile_width] = {};
    const std::int64_t all = rows.count * rows.width, together = tile_width / rows.width * rows.width;
    for (std::int64_t begin = 0; begin < all; begin += together) {
      const int width = static_cast<int>(std::min(together, all - begin));
      for (int i = 0; i < width; ++i) sums[i] += element(rows.offset + begin + i);
    }
    for (std::int64_t first = 0; first < together; first += rows.width) {
      for (int i = 0; i < rows.width; ++i) sum[i] += sums[first + i];
    }
  }
};

}  // namespace frit::ops
