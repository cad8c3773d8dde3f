#include "frit/ops/cpu/block_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "frit/ops/cpu/simd.h"

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

/// A tile of c is held in registers: so many rows of so many vectors, and room for a row of b and an element of a.
constexpr int tile_vectors = 3;
constexpr int tile_rows = simd::registers == 32 ? 8 : 4;
/// A tile's part of b (depth_block rows of tile_vectors vectors) stays in the first-level cache.
constexpr std::int64_t depth_block = 128;

template <class T, int rows, int vectors>
void multiply_tile(const BlockProduct<T>& p, std::int64_t b_stride) {
  Vector<T> sums[rows][vectors] = {};
  const T* a[rows];
  for (int i = 0; i < rows; ++i) a[i] = p.a + i * p.a_row_stride;
  const T* b = p.b;
  for (std::int64_t k = 0; k < p.depth; ++k, b += b_stride) {
    Vector<T> b_row[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) b_row[v] = simd::load(b + v * lanes<T>);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vector<T> element = simd::broadcast(a[i][k * p.a_depth_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[i][v] = simd::multiply_add(element, b_row[v], sums[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
    T* c = p.c + i * p.c_stride;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      T* to = c + v * lanes<T>;
      const std::int64_t count = std::min<std::int64_t>(p.columns - v * lanes<T>, lanes<T>);
      const Vector<T> bias = simd::broadcast(p.row_bias == nullptr ? T(0) : p.row_bias[i]);
      if (count == lanes<T>) {
        simd::store(to, sums[i][v] + (p.accumulate ? simd::load(to) : bias));
      } else {
        Vector<T> before = bias;
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
        if (p.accumulate) std::memcpy(&before, to, bytes);
        const Vector<T> result = sums[i][v] + before;
        std::memcpy(to, &result, bytes);
      }
    }
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

/// The next tile's part of `left`: evenly large parts of at most `most`.
std::int64_t next_part(std::int64_t left, std::int64_t most) {
  const std::int64_t parts = (left + most - 1) / most;
  return (left + parts - 1) / parts;
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
      tiles<T>[static_cast<std::size_t>((rows - 1) * tile_vectors + vectors - 1)](tile, b_stride);
    }
  }
}

}  // namespace

template <class T>
void pack(T* packed, const MatrixView<T>& matrix) {
  const std::int64_t stride = packed_stride<T>(matrix.columns);
  const std::int64_t width = (matrix.columns + lanes<T> - 1) / lanes<T> * lanes<T>;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    T* to = packed + row * stride;
    const T* from = matrix.data + row * matrix.row_stride;
    if (matrix.column_stride == 1) {
      std::copy_n(from, matrix.columns, to);
    } else {
      for (std::int64_t column = 0; column < matrix.columns; ++column) to[column] = from[column * matrix.column_stride];
    }
    std::fill(to + matrix.columns, to + width, T(0));
  }
}

template <class T>
void multiply(const BlockProduct<T>& product) {
  const std::int64_t b_stride = packed_stride<T>(product.columns);
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

template void pack(float*, const MatrixView<float>&);
template void pack(double*, const MatrixView<double>&);
template void multiply(const BlockProduct<float>&);
template void multiply(const BlockProduct<double>&);

}  // namespace frit::ops
