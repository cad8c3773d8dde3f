#pragma once

#include <cstdint>

#include "frit/ops/cpu/simd.h"

namespace frit::ops {

// What products on the CPU share: tiles of the result that are held in registers.

/// The next tile's part of `left`: evenly large parts of at most `most`.
inline int next_part(std::int64_t left, std::int64_t most) {
  const std::int64_t parts = (left + most - 1) / most;
  return static_cast<int>((left + parts - 1) / parts);
}

/// Adds a row of b, `vectors` vectors, times element(i) to each row i of a tile.
template <class T, int rows, int vectors, class Element>
[[gnu::always_inline]] inline void add_products(simd::Vector<T> (&sums)[rows][vectors], const T* b, const Element& element) {
  simd::Vector<T> b_row[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    b_row[v] = simd::load(b + v * simd::lanes<T>);
    simd::keep_in_register(b_row[v]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    const simd::Vector<T> factor = simd::broadcast(element(i));
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[i][v] = simd::multiply_add(factor, b_row[v], sums[i][v]);
  }
}

}  // namespace frit::ops
