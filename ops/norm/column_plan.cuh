#pragma once

#include <algorithm>
#include <numeric>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
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

/// Of channels over a batch of which no vectors of `width` make up a row: as many rows as they do make up are one. Sums of columns are then
/// (chunks, merged_rows, channels).
inline ColumnGeometry with_merged_rows(const ColumnGeometry& g, int width) {
  if (g.matrices != 1 || g.group != 1 || g.channel_columns != 1 || g.columns == 0) return g;
  const int merged = width / static_cast<int>(std::gcd<std::int64_t>(g.columns, width));
  if (g.rows % merged != 0 || g.columns * merged > Columns::most_columns) return g;
  return {{1, g.rows / merged, g.columns * merged}, 1, 1, merged};
}

/// Sums of columns that a call keeps at a time, at most: of elements of any size, with merged rows or without.
inline std::int64_t most_column_sums(const ColumnGeometry& g) {
  std::int64_t sums = g.most_sums();
  for (int width = 2; width <= 8; width *= 2) sums = std::max(sums, with_merged_rows(g, width).most_sums());
  return sums;
}

/// Blocks of a device that may share the rows of columns: those of a cluster, where there are clusters and room for several. Without any
/// device, those of the kind that frit is made for.
inline int most_sharing_blocks(const Device& device) {
  constexpr int enough_multiprocessors = 64;
  if (cuda::device_count() == 0) return cuda::most_cluster_blocks;
  const cuda::DeviceProperties& properties = cuda::properties(device.index);
  return properties.capability >= 90 && properties.multiprocessors >= enough_multiprocessors ? cuda::most_cluster_blocks : 1;
}

/// What one launch reads, and when two take less time: nanoseconds for a thread's row in its passes, and for the second launch, with what
/// that takes a MiB, as measured on an H100 in halves.
struct OneLaunch {
  int tensors;
  std::int64_t row, second, second_mebibyte;
};
inline constexpr OneLaunch statistics_at_once{1, 280, 4000, 500}, gradients_at_once{2, 1130, 9000, 800};

/// A split for one launch, in which a block, or a cluster of at most `most_cluster` of them, has all rows of the columns of some slices,
/// and passes over them a second time as they mostly lie in a cache; none where these are too many for that.
inline std::optional<ColumnSplit> whole_slices(const ColumnGeometry& g, int width, std::size_t element_size, const OneLaunch& launch,
                                               int most_cluster) {
  constexpr std::int64_t most_group = 64, most_bytes = 16 << 20, enough_blocks = 132, few_rows = 4, most_rows = 32;  // rows of a thread
  constexpr std::size_t sector = 32;
  const auto bytes = static_cast<std::int64_t>(element_size) * launch.tensors;
  if (g.columns == 0 || g.group > most_group || g.rows * g.columns * g.matrices * bytes > most_bytes) return std::nullopt;
  // What is shared is read in pieces of a row, 32 bytes each: of more than this, two launches that read whole rows take less time.
  constexpr std::int64_t most_shared = 1600 << 10, mebibyte = 1 << 20;
  const std::int64_t tensor_bytes = g.rows * g.columns * g.matrices * static_cast<std::int64_t>(element_size);
  if (tensor_bytes > most_shared) most_cluster = 1;
  const std::int64_t vectors = g.columns / width;
  const auto blocks_of = [&](std::int64_t lanes) { return vectors / lanes * g.matrices; };
  const auto step_of = [](std::int64_t lanes) { return ColumnSplit::threads / lanes; };
  // As many blocks as fill the device, if each has some rows.
  const auto cluster_of = [&](std::int64_t lanes) {
    const int most = lanes * width <= ColumnSplit::most_cluster_columns ? most_cluster : 1;
    int cluster = 1;
    while (cluster < most && g.rows > few_rows * cluster * step_of(lanes) &&
           (2 * blocks_of(lanes) * cluster < 3 * enough_blocks || g.rows > most_rows * cluster * step_of(lanes))) {
      cluster *= 2;
    }
    return cluster;
  };
  std::int64_t lanes = std::lcm<std::int64_t>(g.group, width) / width;
  if (vectors % lanes != 0 || lanes > ColumnSplit::most_lanes) return std::nullopt;
  const auto piece = [&] { return static_cast<std::size_t>(lanes * width) * element_size; };
  while (2 * piece() < sector && 2 * lanes <= ColumnSplit::most_lanes && vectors % (2 * lanes) == 0) lanes *= 2;
  const bool halves_sectors = piece() < sector && 2 * lanes <= ColumnSplit::most_lanes;
  if (halves_sectors && vectors % (2 * lanes) == 0 && blocks_of(2 * lanes) * cluster_of(2 * lanes) >= enough_blocks) lanes *= 2;
  const int cluster = cluster_of(lanes);
  const std::int64_t rows = g.rows / (cluster * step_of(lanes));  // of a thread
  const bool two_take_less = rows * launch.row > launch.second + tensor_bytes * launch.second_mebibyte / mebibyte;
  if (two_take_less || g.rows > most_rows * cluster * step_of(lanes)) return std::nullopt;
  ColumnSplit split(g, width, /*blocks_at_a_time=*/1, lanes);
  split.share_rows(cluster);
  return split;
}

}  // namespace frit::ops
