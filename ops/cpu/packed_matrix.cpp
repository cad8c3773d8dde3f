#include "frit/ops/cpu/packed_matrix.h"

#include <cstring>

#include "frit/ops/cpu/transpose.h"

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

/// Rounded as a vector's.
template <class T>
T multiply_add(T a, T b, T c) {
  return simd::multiply_add(simd::broadcast(a), simd::broadcast(b), simd::broadcast(c))[0];
}

/// Rows that are copied at a time, of all columns: what is read then lies side by side, and so does what is written of a block.
constexpr std::int64_t copied_rows = 8;

/// A matrix whose rows lie side by side.
template <class T>
void copy_rows(const MatrixView<T>& matrix, T* packed) {
  for (std::int64_t k = 0; k < matrix.depth; k += copied_rows) {
    const std::int64_t end = std::min(k + copied_rows, matrix.depth);
    for (std::int64_t column = 0; column < matrix.columns; column += product_columns<T>) {
      const std::int64_t width = block_vectors<T>(matrix.columns, column) * lanes<T>, columns = std::min(width, matrix.columns - column);
      T* const block = packed + column * matrix.depth;
      const T* const from = matrix.data + column;
      if (columns == product_columns<T>) {
        for (std::int64_t row = k; row < end; ++row) {
          __builtin_prefetch(from + (row + copied_rows) * matrix.depth_stride);
          std::memcpy(block + row * width, from + row * matrix.depth_stride, product_columns<T> * sizeof(T));
        }
      } else {
        for (std::int64_t row = k; row < end; ++row) {
          std::fill(std::copy_n(from + row * matrix.depth_stride, columns, block + row * width), block + (row + 1) * width, T(0));
        }
      }
    }
  }
}

/// A square of vectors of a matrix whose columns lie side by side; zeros where it has no more columns.
template <class T>
[[gnu::always_inline]] inline void load_square(Vector<T> (&square)[lanes<T>], const MatrixView<T>& matrix, std::int64_t k,
                                               std::int64_t column) {
  constexpr int n = lanes<T>;
  const T* const from = matrix.data + k + column * matrix.column_stride;
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) square[i] = column + i < matrix.columns ? simd::load(from + i * matrix.column_stride) : Vector<T>{};
  simd::transpose(square);
}

template <class T>
void transpose_square(const MatrixView<T>& matrix, std::int64_t k, std::int64_t column, T* to, std::int64_t width) {
  Vector<T> square[lanes<T>];
  load_square(square, matrix, k, column);
#pragma GCC unroll 16
  for (int i = 0; i < lanes<T>; ++i) simd::store(to + i * width, square[i]);
}

/// Elements of a line.
template <class T>
constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));

/// A matrix whose columns lie side by side: a line of each at a time, as columns may be so far apart that they fall on one cache set.
template <class T>
void transpose_columns(const MatrixView<T>& matrix, T* packed) {
  constexpr std::int64_t n = lanes<T>;
  const std::int64_t whole = matrix.depth / n * n;
  for (std::int64_t first = 0; first < matrix.columns; first += product_columns<T>) {
    const std::int64_t width = block_vectors<T>(matrix.columns, first) * n;
    T* const block = packed + first * matrix.depth;
    for (std::int64_t begin = 0; begin < whole; begin += line<T>) {
      for (std::int64_t column = 0; column < width; column += n) {
        for (std::int64_t k = begin; k < std::min(begin + line<T>, whole); k += n) {
          transpose_square(matrix, k, first + column, block + k * width + column, width);
        }
      }
    }
    for (std::int64_t k = whole; k < matrix.depth; ++k) {
      for (std::int64_t i = 0; i < width; ++i) {
        block[k * width + i] = first + i < matrix.columns ? matrix.data[k + (first + i) * matrix.column_stride] : T(0);
      }
    }
  }
}

}  // namespace

template <class T>
void pack(const MatrixView<T>& matrix, T* packed) {
  matrix.column_stride == 1 ? copy_rows(matrix, packed) : transpose_columns(matrix, packed);
}

template <class T>
void multiply_row(const MatrixView<T>& matrix, const T* row, T* c, bool accumulate, const T* bias) {
  constexpr std::int64_t n = lanes<T>;
  const std::int64_t whole = matrix.depth / n * n;
  for (std::int64_t first = 0; first < matrix.columns; first += product_columns<T>) {
    Vector<T> sums[product_vectors] = {};
    for (std::int64_t begin = 0; begin < whole; begin += line<T>) {
#pragma GCC unroll 2
      for (int v = 0; v < product_vectors; ++v) {
        for (std::int64_t k = begin; k < std::min(begin + line<T>, whole); k += n) {
          Vector<T> square[n];
          load_square(square, matrix, k, first + v * n);
#pragma GCC unroll 16
          for (int i = 0; i < n; ++i) sums[v] = simd::multiply_add(simd::broadcast(row[k + i]), square[i], sums[v]);
        }
      }
    }
    alignas(64) T results[product_columns<T>];
    std::memcpy(results, sums, sizeof results);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(product_columns<T>, matrix.columns - first); ++i) {
      const T* const column = matrix.data + (first + i) * matrix.column_stride;
      T sum = results[i];
      for (std::int64_t k = whole; k < matrix.depth; ++k) sum = multiply_add(row[k], column[k], sum);
      T& element = c[first + i];
      element = sum + (accumulate ? element : bias != nullptr ? bias[first + i] : T(0));  // as tiles end
    }
  }
}

template void pack(const MatrixView<float>&, float*);
template void pack(const MatrixView<double>&, double*);
template void multiply_row(const MatrixView<float>&, const float*, float*, bool, const float*);
template void multiply_row(const MatrixView<double>&, const double*, double*, bool, const double*);

}  // namespace frit::ops
