#pragma once

#include <algorithm>
#include <climits>
#include <optional>
#include <span>
#include <vector>

#include "frit/core/strided_loop.h"
#include "frit/ops/elementwise/program.cuh"

namespace frit::ops::program {

/// A program's tensors as matrices, (matrices, rows, columns), of which the outputs' columns are neighbours in memory.
struct Matrices {
  cuda::TileGrid grid = {};
  std::vector<Operand> operands;
  std::vector<Access> access;  ///< by operand
  bool are_parts = false;      ///< of wider ones, an output and maybe inputs

  /// Of views in the order of the outputs' memory; nothing where these are not matrices of at least 8 x 8. The first `inputs` are read.
  static std::optional<Matrices> of(std::span<const Tensor> tensors, std::size_t inputs) {
    constexpr std::int64_t least = 8;
    Shape shape = tensors.back().shape();
    std::vector<Strides> strides;
    for (const Tensor& tensor : tensors) strides.push_back(tensor.strides());
    collapse_axes(shape, strides);
    if (shape.rank() < 2 || shape.rank() > 3) return std::nullopt;
    const int first = shape.rank() - 3;  // -1: there is one matrix
    Matrices result{.grid = {first < 0 ? 1 : shape[first], shape[first + 1], shape[first + 2]}};
    if (result.grid.rows < least || result.grid.columns < least) return std::nullopt;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      const std::int64_t of_matrices = first < 0 ? 0 : strides[k][first], of_rows = strides[k][first + 1],
                         of_columns = strides[k][first + 2];
      result.operands.push_back({tensors[k].raw(), 3, {}, {of_matrices, of_rows, of_columns}});
      result.access.push_back(of_columns == 1   ? (of_rows == 0 ? Access::column : Access::vector)
                              : of_columns == 0 ? Access::row
                              : of_rows == 1    ? Access::turned
                                                : Access::indexed);
      if (k < inputs) continue;
      if (result.access[k] != Access::vector) return std::nullopt;
      result.are_parts = result.are_parts || of_rows != result.grid.columns;
    }
    return result;
  }

  bool any(Access kind) const { return std::find(access.begin(), access.end(), kind) != access.end(); }

  /// Whether vectors of so many columns are aligned in all tensors whose columns are neighbours.
  bool takes_vectors(std::span<const Tensor> tensors, int width) const {
    bool fits = grid.columns % width == 0;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (access[k] != Access::vector && access[k] != Access::column) continue;
      const std::size_t bytes = static_cast<std::size_t>(width) * size_of(tensors[k].dtype());
      fits = fits && operands[k].strides[0] % width == 0 && operands[k].strides[1] % width == 0 &&
             reinterpret_cast<std::uintptr_t>(operands[k].data) % bytes == 0;
    }
    return fits;
  }

  /// The widest of such vectors, of a power of 2 and at most `most`.
  int widest_vectors(std::span<const Tensor> tensors, int most) const {
    while (most > 1 && !takes_vectors(tensors, most)) most /= 2;
    return most;
  }
};

/// Where there are inputs whose rows are neighbours in memory and not their columns: tiles that pass through shared memory.
struct Tiling {
  Matrices matrices;
  int rows, width;  ///< of a tile; of a vector

  static std::optional<Tiling> of(const std::optional<Matrices>& matrices, std::span<const Tensor> tensors, int widest) {
    constexpr std::size_t most_shared_bytes = 48 << 10;
    if (!matrices) return std::nullopt;
    std::size_t shared_bytes = 0;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      if (matrices->access[k] == Access::turned) shared_bytes += cuda::tile_elements * size_of(tensors[k].dtype());
    }
    if (shared_bytes == 0 || shared_bytes > most_shared_bytes) return std::nullopt;
    const Tiling tiling{*matrices, cuda::tile_rows_for(matrices->grid.rows, matrices->grid.columns),
                        matrices->widest_vectors(tensors, widest)};
    if (cuda::tile_count(matrices->grid, tiling.rows) > INT_MAX) return std::nullopt;
    return tiling;
  }

  unsigned blocks() const { return static_cast<unsigned>(cuda::tile_count(matrices.grid, rows)); }
  /// Of a column, elements that may be read at once.
  int turned_width(std::size_t k, const Tensor& tensor) const {
    const int most = 16 / static_cast<int>(size_of(tensor.dtype()));
    const std::int64_t* const strides = matrices.operands[k].strides;
    const bool whole = matrices.grid.rows % most == 0 && strides[0] % most == 0 && strides[2] % most == 0;
    return whole && cuda::aligned_for_vectors(tensor.raw()) ? most : 1;
  }
};

/// Where there are inputs that are the same in all rows, as numbers of channels are, or outputs that are parts of wider ones: strips of
/// rows, for which a thread reads what is the same once.
struct Stripping {
  Matrices matrices;
  int width;  ///< of a vector

  static std::optional<Stripping> of(const std::optional<Matrices>& matrices, std::span<const Tensor> tensors, int widest) {
    if (!matrices || matrices->any(Access::turned) || matrices->any(Access::indexed)) return std::nullopt;
    if (!matrices->any(Access::column) && !matrices->are_parts) return std::nullopt;
    if (matrices->grid.rows > INT_MAX / 2) return std::nullopt;
    return Stripping{*matrices, matrices->widest_vectors(tensors, widest)};
  }

  /// As long as they may be, but for small tensors, which are shared out to all multiprocessors.
  Strips strips(int multiprocessors) const {
    constexpr int most_turns = 4, least_blocks = 8;
    const std::int64_t vectors = matrices.grid.columns / width;
    Strips result{matrices.grid, static_cast<int>(std::min<std::int64_t>(vectors, threads)), 0};
    for (int turns = most_turns; turns > 0; turns /= 2) {
      result.rows = result.step() * rows_at_once(width) * turns;
      if (result.blocks(width) >= least_blocks * multiprocessors) break;
    }
    return result;
  }
};

}  // namespace frit::ops::program
