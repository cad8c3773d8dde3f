#include "frit/ops/cpu/block_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "frit/ops/cpu/product_tile.h"
#include "frit/ops/cpu/transpose.h"

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

/// A tile of c is held in registers: so many rows of so many vectors, and room for a row of b and an element of a.
constexpr int tile_vectors = 3;
constexpr int tile_rows = simd::registers == 32 ? 8 : 4;
/// A tile's part of b (depth_block rows of tile_vectors vectors) stays in the first-level cache.
constexpr std::int64_t depth_block = 128;

/// A tile with all its columns: c may be written a whole vector at a time.
template <class T, int rows, int vectors>
void multiply_tile(const BlockProduct<T>& p, std::int64_t b_stride) {
  Vector<T> sums[rows][vectors] = {};
  const T* a[rows];
  for (int i = 0; i < rows; ++i) a[i] = p.depth == 0 ? nullptr : p.a + i * p.a_row_stride;
  const T* b = p.b;
  const T* const b_end = b + p.depth * b_stride;
  for (std::int64_t k = 0; b != b_end; k += p.a_depth_stride, b += b_stride) {
    add_products<T, rows, vectors>(
        sums, b, [&](int i) __attribute__((always_inline)) { return a[i][k]; });
  }
  const auto finish = [&](const auto& before) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        T* c = p.c + i * p.c_stride + v * lanes<T>;
        simd::store(c, sums[i][v] + before(c, i));
      }
    }
  };
  if (p.accumulate) {
    finish([](const T* c, int) { return simd::load(c); });
  } else if (p.row_bias != nullptr) {
    finish([&](const T*, int i) { return simd::broadcast(p.row_bias[i]); });
  } else {
    finish([](const T*, int) { return Vector<T>{}; });
  }
}

template <class T>
using TileFunction = void (*)(const BlockProduct<T>&, std::int64_t b_stride);

/// multiply_tile for 1 .. tile_rows rows and 1 .. tile_vectors vectors.
template <class T, int... sizes>
constexpr auto tile_functions(std::integer_sequence<int, sizes...>) {
  return std::array<TileFunction<T>, sizeof...(sizes)>{&multiply_tile<T, sizes / tile_vectors + 1, sizes % tile_vectors + 1>...};
}
template <class T>
constexpr auto tiles = tile_functions<T>(std::make_integer_sequence<int, tile_rows * tile_vectors>());

/// The last vector of a tile's columns is not full: through a buffer.
template <class T>
void multiply_partial_tile(BlockProduct<T> tile, std::int64_t b_stride, std::int64_t rows, TileFunction<T> function) {
  constexpr std::int64_t stride = tile_vectors * lanes<T>;
  alignas(64) T buffer[tile_rows * stride];
  const BlockProduct<T> whole = tile;
  tile.c = buffer;
  tile.c_stride = stride;
  tile.accumulate = false;
  if (whole.accumulate) tile.row_bias = nullptr;
  function(tile, b_stride);
  for (std::int64_t row = 0; row < rows; ++row) {
    T* c = whole.c + row * whole.c_stride;
    const T* result = buffer + row * stride;
    for (std::int64_t i = 0; i < whole.columns; ++i) c[i] = whole.accumulate ? c[i] + result[i] : result[i];
  }
}

/// One block of the depth: each tile's part of b is used for all rows while it is in the cache.
template <class T>
void multiply_depth_block(const BlockProduct<T>& block, std::int64_t b_stride) {
  BlockProduct<T> tile = block;
  for (std::int64_t column = 0, vectors; column < block.columns; column += vectors * lanes<T>) {
    vectors = next_part((block.columns - column + lanes<T> - 1) / lanes<T>, tile_vectors);
    tile.columns = std::min(vectors * lanes<T>, block.columns - column);
    tile.b = block.b + column;
    for (std::int64_t row = 0, rows; row < block.rows; row += rows) {
      rows = next_part(block.rows - row, tile_rows);
      tile.a = block.a + row * block.a_row_stride;
      tile.c = block.c + row * block.c_stride + column;
      if (block.row_bias != nullptr) tile.row_bias = block.row_bias + row;
      const auto function = tiles<T>[static_cast<std::size_t>((rows - 1) * tile_vectors + vectors - 1)];
      if (tile.columns == vectors * lanes<T>) {
        function(tile, b_stride);
      } else {
        multiply_partial_tile(tile, b_stride, rows, function);
      }
    }
  }
}

/// The square of a matrix, whose columns lie contiguous, from a row and a column on; zeros where the matrix has no more columns.
template <class T>
inline void load_square(Vector<T> (&square)[lanes<T>], const MatrixView<T>& matrix, std::int64_t row, std::int64_t column) {
  const T* const from = matrix.data + row + column * matrix.column_stride;
#pragma GCC unroll 16
  for (int i = 0; i < lanes<T>; ++i) square[i] = column + i < matrix.columns ? simd::load(from + i * matrix.column_stride) : Vector<T>{};
  simd::transpose(square);
}

/// Packs a matrix whose rows do not lie contiguous: a square of vectors at a time where its columns do, else an element at a time.
template <class T>
void pack_columns(T* packed, std::int64_t stride, const MatrixView<T>& matrix) {
  constexpr std::int64_t n = lanes<T>;
  for (std::int64_t column = 0; column < matrix.columns; column += n) {
    for (std::int64_t row = 0; row < matrix.rows; row += n) {
      const T* from = matrix.data + row * matrix.row_stride + column * matrix.column_stride;
      T* to = packed + row * stride + column;
      if (matrix.row_stride == 1 && row + n <= matrix.rows) {
        Vector<T> square[n];
        load_square(square, matrix, row, column);
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) simd::store(to + i * stride, square[i]);
        continue;
      }
      for (std::int64_t i = 0; i < std::min(n, matrix.rows - row); ++i) {
        for (std::int64_t j = 0; j < std::min(n, matrix.columns - column); ++j) {
          to[i * stride + j] = from[i * matrix.row_stride + j * matrix.column_stride];
        }
      }
    }
  }
}

}  // namespace

std::int64_t vector_padding(std::int64_t columns, std::size_t element_size) {
  const auto width = static_cast<std::int64_t>(simd::vector_bytes / element_size);
  return (width - columns % width) % width;
}

template <class T>
void pack(T* packed, const MatrixView<T>& matrix) {
  const std::int64_t stride = packed_stride(matrix.columns, sizeof(T));
  const std::int64_t padding = vector_padding(matrix.columns, sizeof(T));
  if (matrix.column_stride == 1) {
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      std::copy_n(matrix.data + row * matrix.row_stride, matrix.columns, packed + row * stride);
    }
  } else {
    pack_columns(packed, stride, matrix);
  }
  for (std::int64_t row = 0; row < matrix.rows; ++row) std::fill_n(packed + row * stride + matrix.columns, padding, T(0));
}

template <class T>
void multiply(const BlockProduct<T>& product) {
  const std::int64_t b_stride = packed_stride(product.columns, sizeof(T));
  BlockProduct<T> block = product;
  std::int64_t done = 0;
  do {
    block.depth = std::min(depth_block, product.depth - done);
    block.a = product.a + done * product.a_depth_stride;
    block.b = product.b + done * b_stride;
    multiply_depth_block(block, b_stride);
    block.accumulate = true;
    done += block.depth;
  } while (done < product.depth);
}

template <class T>
void multiply_row(const MatrixView<T>& b, const T* a, std::int64_t a_stride, T* c, bool accumulate) {
  constexpr std::int64_t n = lanes<T>;
  for (std::int64_t column = 0; column < b.columns; column += n) {
    const auto bytes = static_cast<std::size_t>(std::min(n, b.columns - column)) * sizeof(T);
    Vector<T> sums = {}, before = {};
    std::int64_t k = 0;
    for (; k + n <= b.rows; k += n) {
      Vector<T> square[n];
      load_square(square, b, k, column);
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) sums = simd::multiply_add(simd::broadcast(a[(k + i) * a_stride]), square[i], sums);
    }
    for (; k < b.rows; ++k) {
      Vector<T> row = {};
      for (std::int64_t i = 0; i < std::min(n, b.columns - column); ++i) row[i] = b.data[k + (column + i) * b.column_stride];
      sums = simd::multiply_add(simd::broadcast(a[k * a_stride]), row, sums);
    }
    if (accumulate) std::memcpy(&before, c + column, bytes);
    sums += before;
    std::memcpy(c + column, &sums, bytes);
  }
}

template void pack(float*, const MatrixView<float>&);
template void pack(double*, const MatrixView<double>&);
template void multiply(const BlockProduct<float>&);
template void multiply(const BlockProduct<double>&);
template void multiply_row(const MatrixView<float>&, const float*, std::int64_t, float*, bool);
template void multiply_row(const MatrixView<double>&, const double*, std::int64_t, double*, bool);

}  // namespace frit::ops
