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
    } else {
      add_rows(rows.width);
    }
  }
};

}  // namespace frit::ops
