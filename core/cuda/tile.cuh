#pragma once

#include <cstdint>

#include "frit/core/cuda/vector.cuh"

// Tensors whose innermost axes lie the other way round than another's are read in tiles that pass through shared memory, so that either is
// accessed in whole stretches. NVRTC compiles this header too.

namespace frit::cuda {

inline constexpr int tile_threads = 256, tile_elements = 4096;

/// Matrices of (rows, columns), one after the other. Where an operand's elements lie, its strides of matrices, rows and columns say.
struct TileGrid {
  std::int64_t matrices, rows, columns;
};

/// The tile of a block: of `tile_rows` times `tile_columns` elements, columns in turn.
template <int tile_rows, int tile_columns>
struct TilePlace {
  static_assert(tile_rows * tile_columns == tile_elements);
  std::int64_t matrix, row, column;
  int rows, columns;  ///< that exist, where these are fewer than a tile's

  __device__ explicit TilePlace(const TileGrid& grid) {
    const auto across = static_cast<unsigned>((grid.columns + tile_columns - 1) / tile_columns);
    const auto down = static_cast<unsigned>((grid.rows + tile_rows - 1) / tile_rows);
    const unsigned rest = blockIdx.x / across;
    column = static_cast<std::int64_t>(blockIdx.x % across) * tile_columns;
    row = static_cast<std::int64_t>(rest % down) * tile_rows;
    matrix = rest / down;
    rows = static_cast<int>(grid.rows - row < tile_rows ? grid.rows - row : tile_rows);
    columns = static_cast<int>(grid.columns - column < tile_columns ? grid.columns - column : tile_columns);
  }

  __device__ bool has(int r, int c) const { return r < rows && c < columns; }
  __device__ std::int64_t offset(const std::int64_t (&strides)[3], int r = 0, int c = 0) const {
    return matrix * strides[0] + (row + r) * strides[1] + (column + c) * strides[2];
  }
};

/// A tile of an operand whose rows are neighbours in memory, turned so that its columns are. Its chunks of 16 bytes change places from one
/// chunk of rows to the next: the threads that write a chunk of one column each, and those that read a row, meet in few memory banks.
template <class T, int tile_rows, int tile_columns>
struct TurnedTile {
  static constexpr int chunk = 16 / static_cast<int>(sizeof(T)), chunks = tile_columns / chunk;
  static_assert(chunks > 0 && (chunks & (chunks - 1)) == 0);

  alignas(16) T elements[tile_elements];

  __device__ static int place(int row, int column) {
    return row * tile_columns + ((column / chunk) ^ ((row / chunk) & (chunks - 1))) * chunk + column % chunk;
  }

  /// `vector` elements of a column at a time, aligned in memory if there are several. All threads of the block take part.
  template <int vector>
  __device__ void load(const T* data, const std::int64_t (&strides)[3], const TilePlace<tile_rows, tile_columns>& at) {
    constexpr int column_vectors = tile_rows / vector, turns = tile_elements / vector / tile_threads;
    constexpr int at_once = turns < 4 ? turns : 4;
    const T* const first = data + at.offset(strides);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int turn = 0; turn < turns; turn += at_once) {
      VectorWords<T, vector> held[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int i = thread + (turn + u) * tile_threads, row = i % column_vectors * vector, column = i / column_vectors;
        if (at.has(row, column)) held[u] = VectorWords<T, vector>::load(first + column * strides[2] + row, true);
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int i = thread + (turn + u) * tile_threads, row = i % column_vectors * vector, column = i / column_vectors;
#pragma unroll
        for (int k = 0; k < vector; ++k) elements[place(row + k, column)] = held[u][k];
      }
    }
  }

  /// Neighbouring elements of a row; `column` is a multiple of their number.
  template <int width>
  __device__ Vector<T, width> row_elements(int row, int column) const {
    constexpr int part = width < chunk ? width : chunk;
    Vector<T, width> result;
#pragma unroll
    for (int i = 0; i < width; i += part) {
      const auto elements_of = *reinterpret_cast<const Vector<T, part>*>(elements + place(row, column + i));
#pragma unroll
      for (int k = 0; k < part; ++k) result[i + k] = elements_of[k];
    }
    return result;
  }
};

/// Rows of a tile for matrices of so many rows and columns: fewer of one where there are few.
inline int tile_rows_for(std::int64_t rows, std::int64_t columns) {
  if (rows <= 16) return 16;
  return columns <= 16 ? 256 : 64;
}

inline std::int64_t tile_count(const TileGrid& grid, int tile_rows) {
  const std::int64_t tile_columns = tile_elements / tile_rows;
  return grid.matrices * ((grid.rows + tile_rows - 1) / tile_rows) * ((grid.columns + tile_columns - 1) / tile_columns);
}

}  // namespace frit::cuda
