#pragma once

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

}  // namespace frit::ops
