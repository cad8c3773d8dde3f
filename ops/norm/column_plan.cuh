#pragma once

#include <numeric>
#include <optional>

#include "frit/ops/norm/columns.cuh"
#include "frit/ops/norm/norm_core.h"

namespace frit::ops {

// Which norms the passes over columns take, and how they share them out.

/// Of a norm whose input lies in this layout; none where its slices are runs of neighbouring elements.
inline std::optional<ColumnGeometry> column_geometry(const NormGeometry& g, Layout layout) {
  const bool batch = g.weight_axis == WeightAxis::slice;
  if (layout == Layout::channels_last) {
    if (batch) return ColumnGeometry{{1, g.runs * g.run_length, g.slices}, 1, 1};
    return ColumnGeometry{{g.channels == 0 ? 0 : g.slices * g.runs / g.channels, g.run_length, g.channels}, g.runs, 1};
  }
  if (batch && g.run_length > 0 && g.run_length < 8 && g.slices * g.run_length <= Columns::most_columns)
    return ColumnGeometry{{1, g.runs, g.slices * g.run_length}, g.run_length, g.run_length};
  return std::nullopt;
}

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

}  // namespace frit::ops
