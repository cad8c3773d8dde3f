#pragma once

#include "frit/ops/cuda/columns.cuh"
#include "frit/ops/norm/normalizer.cuh"

namespace frit::ops {

// The matrices of the norms whose columns belong to channels: images in channels-last layout, and contiguous ones of a few elements a
// channel.

/// `group` neighbouring columns of a matrix are a slice, `channel_columns` of them a channel.
struct ColumnGeometry : Columns {
  std::int64_t group, channel_columns;
  int merged_rows = 1;  ///< so many rows of the norm are one here, each with the columns of all slices and channels

  FRIT_HOST_DEVICE std::int64_t groups() const { return columns / group; }
  __device__ std::int64_t slice(std::int64_t matrix, int column) const {
    return matrix * (static_cast<int>(columns) / static_cast<int>(group)) + of_one_row(column) / static_cast<int>(group);
  }
  __device__ std::int64_t channel(int column) const { return of_one_row(column) / static_cast<int>(channel_columns); }
  __device__ bool is_first_of_channel(int column) const { return column % static_cast<int>(channel_columns) == 0; }
  /// Of the first element in the slice of a column, from the first matrix's beginning.
  __device__ std::int64_t first_of(std::int64_t matrix, int column) const {
    const int own = of_one_row(column);
    return matrix * rows * columns + own - own % static_cast<int>(group);
  }
  /// Where a slice begins, from the first matrix's beginning.
  FRIT_HOST_DEVICE std::int64_t first_of(std::int64_t slice) const { return slice / groups() * rows * columns + slice % groups() * group; }

 private:
  __device__ int of_one_row(int column) const { return merged_rows == 1 ? column : column % (static_cast<int>(columns) / merged_rows); }
};

/// Sums of the slices that a block has all columns of: of column_sum, in shared memory, over each slice's columns.
template <class Finish>
__device__ void for_slices(const SumPair* column_sums, const ColumnGeometry& g, const ColumnIterator& it, const ColumnSplit& split,
                           const Finish& finish) {
  const int group = static_cast<int>(g.group), first = it.column - it.lane * split.width;
  const auto slice = static_cast<int>(threadIdx.x);
  if (slice * group >= split.lanes * split.width || first + slice * group >= split.columns) return;
  SumPair sums{0, 0};
#pragma unroll 4
  for (int k = 0; k < group; ++k) sums = sums + column_sums[slice * group + k];
  finish(slice, first + slice * group, sums);
}

}  // namespace frit::ops
