#pragma once

#include <cstddef>
#include <cstdint>

namespace frit::ops {

/// A read-only matrix of any strides, in elements.
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t rows, columns;
  std::int64_t row_stride, column_stride;
};

/// The row stride of a packed matrix: whole 64-byte lines, an odd number of them, so that rows fall on different cache sets.
constexpr std::int64_t packed_stride(std::int64_t columns, std::size_t element_size) {
  const auto line = static_cast<std::int64_t>(64 / element_size);
  return ((columns + line - 1) / line | 1) * line;
}

/// The elements after a packed row, up to a whole vector, that must be zeros.
std::int64_t vector_padding(std::int64_t columns, std::size_t element_size);

/// Copies `matrix` to rows of packed_stride(columns) elements, with that padding. `packed` is 64-byte aligned.
template <class T>
void pack(T* packed, const MatrixView<T>& matrix);

/// c (rows, columns) = a (rows, depth) b (depth, columns), for blocks that fit the cache, on the calling thread. `a` may have any strides;
/// `b` is packed; the columns of `c` are contiguous.
template <class T>
struct BlockProduct {
  std::int64_t rows, columns, depth;
  const T* a;
  std::int64_t a_row_stride, a_depth_stride;
  const T* b;
  T* c;
  std::int64_t c_stride;
  bool accumulate = false;      ///< adds to what is in c
  const T* row_bias = nullptr;  ///< or null: one number a row, added unless accumulating
};

/// Sums at most 128 products in one accumulator before they are added to c.
template <class T>
void multiply(const BlockProduct<T>& product);

/// What multiply() makes of one row of `a`, with the same bits, straight from a `b` whose columns lie contiguous and whose depth is at most
/// 128: to pack that would take longer than the products.
template <class T>
void multiply_row(const MatrixView<T>& b, const T* a, std::int64_t a_stride, T* c, bool accumulate);

extern template void pack(float*, const MatrixView<float>&);
extern template void pack(double*, const MatrixView<double>&);
extern template void multiply(const BlockProduct<float>&);
extern template void multiply(const BlockProduct<double>&);
extern template void multiply_row(const MatrixView<float>&, const float*, std::int64_t, float*, bool);
extern template void multiply_row(const MatrixView<double>&, const double*, std::int64_t, double*, bool);

}  // namespace frit::ops
