#pragma once

#include <numeric>
#include <optional>

#include "frit/ops/cuda/columns.cuh"
#include "frit/ops/norm/slices.cuh"

namespace frit::ops {

// The matrices of the norms whose columns belong to channels: images in channels-last layout, and contiguous ones of a few elements a
// channel.

/// `group` neighbouring columns of a matrix are a slice, `channel_columns` of them a channel.
struct ColumnGeometry : Columns {
  std::int64_t group, channel_columns;

  /// Of a norm whose input lies in this layout; none where its slices are runs of neighbouring elements.
  static std::optional<ColumnGeometry> of(const NormGeometry& g, Layout layout) {
    const bool batch = g.weight_axis == WeightAxis::slice;
    if (layout == Layout::channels_last) {
      if (batch) return ColumnGeometry{{1, g.runs * g.run_length, g.slices}, 1, 1};
      return ColumnGeometry{{g.channels == 0 ? 0 : g.slices * g.runs / g.channels, g.run_length, g.channels}, g.runs, 1};
    }
    if (batch && g.run_length > 0 && g.run_length < 8 && g.slices * g.run_length <= most_columns)
      return ColumnGeometry{{1, g.runs, g.slices * g.run_length}, g.run_length, g.run_length};
    return std::nullopt;
  }

  FRIT_HOST_DEVICE std::int64_t groups() const { return columns / group; }
  __device__ std::int64_t slice(std::int64_t matrix, int column) const {
    return matrix * (static_cast<int>(columns) / static_cast<int>(group)) + column / static_cast<int>(group);
  }
  __device__ std::int64_t channel(int column) const { return column / static_cast<int>(channel_columns); }
  /// Of the first element in the slice of a column, from the first matrix's beginning.
  __device__ std::int64_t first_of(std::int64_t matrix, int column) const {
    return matrix * rows * columns + column - column % static_cast<int>(group);
  }
  /// Where a slice begins, from the first matrix's beginning.
  FRIT_HOST_DEVICE std::int64_t first_of(std::int64_t slice) const { return slice / groups() * rows * columns + slice % groups() * group; }
};

/// A split for one launch, in which a block has all rows of the columns of some slices, and passes over them a second time as they mostly
/// lie in a cache; none where these are too many for that.
inline std::optional<ColumnSplit> whole_slices(const ColumnGeometry& g, int width, std::size_t element_size) {
  constexpr std::int64_t most_group = 64, most_bytes = 16 << 20, enough_blocks = 132, thread_rows = 32;
  if (g.columns == 0 || g.group > most_group || g.rows * g.columns * g.matrices * static_cast<std::int64_t>(element_size) > most_bytes)
    return std::nullopt;
  std::int64_t lanes = std::lcm<std::int64_t>(g.group, width) / width;
  const std::int64_t vectors = g.columns / width;
  const bool sectors = vectors / lanes * g.matrices >= 2 * enough_blocks && vectors % (2 * lanes) == 0;
  if (sectors && lanes * width * element_size < 32) lanes *= 2;
  if (vectors % lanes != 0 || lanes > ColumnSplit::most_lanes || g.rows > thread_rows * (ColumnSplit::threads / lanes)) return std::nullopt;
  return ColumnSplit(g, width, /*blocks_at_a_time=*/1, lanes);
}

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
