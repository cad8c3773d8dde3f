#pragma once

#include <algorithm>
#include <cstdint>

#include "frit/ops/cpu/run_product.h"

namespace frit::ops {

/// A read-only matrix (depth, columns) whose rows or columns lie side by side; strides in elements.
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t depth, columns;
  std::int64_t depth_stride, column_stride;

  MatrixView part(std::int64_t k, std::int64_t count, std::int64_t column, std::int64_t width) const {
    return {data + k * depth_stride + column * column_stride, count, width, depth_stride, column_stride};
  }
};

template <class T>
constexpr std::int64_t whole_vectors(std::int64_t columns) {
  return (columns + simd::lanes<T> - 1) / simd::lanes<T> * simd::lanes<T>;
}
/// Of the block of product_columns columns that begins at `column`; the last one may have fewer.
template <class T>
constexpr int block_vectors(std::int64_t columns, std::int64_t column) {
  return static_cast<int>(std::min<std::int64_t>(product_columns<T>, whole_vectors<T>(columns - column)) / simd::lanes<T>);
}

/// Packs a matrix as products read it: for each block of product_columns columns its rows, of whole vectors, the last filled up with zeros.
template <class T>
void pack(const MatrixView<T>& matrix, T* packed);

/// c (columns) = row (depth) times a matrix whose columns lie side by side, with the bits of the product with the packed matrix, which
/// takes longer to be packed than to be read. `bias`, which may be null, is added unless accumulating.
template <class T>
void multiply_row(const MatrixView<T>& matrix, const T* row, T* c, bool accumulate, const T* bias);

}  // namespace frit::ops
