// How weight gradients are shared out to warpgroups.

#include <algorithm>
#include <climits>

#include "frit/ops/convolution/weight_gradient/row_tiles.cuh"

namespace frit::ops {
namespace {

int ceil_divide(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// Sizes that do not depend on tiles.
std::optional<RowTiles> sizes_of(const ConvolutionGeometry& g) {
  constexpr std::int64_t vector = 4;
  const bool channels = g.groups == 1 && g.in_channels % vector == 0 && g.out_channels % vector == 0;
  const bool indexed = product(g.input) * g.in_channels <= INT_MAX && product(g.output) * g.out_channels <= INT_MAX &&
                       product(g.kernel) * g.in_channels * g.out_channels <= INT_MAX;
  const bool kernel = g.kernel[1] == RowTiles::side && g.kernel[2] == RowTiles::side;
  if (!channels || !indexed || !kernel || g.batch == 0 || product(g.input) == 0 || product(g.output) == 0) return std::nullopt;
  RowTiles w{};
  w.out_channels = static_cast<int>(g.out_channels), w.in_channels = static_cast<int>(g.in_channels);
  w.output_blocks = ceil_divide(g.out_channels, RowTiles::channels), w.input_blocks = ceil_divide(g.in_channels, RowTiles::channels);
  w.depth_taps = static_cast<int>(g.kernel[0]);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (g.dilation[axis] != 1 || g.stride[axis] != 1 || g.padding[axis] >= INT_MAX / 2) return std::nullopt;
    w.input[axis] = static_cast<int>(g.input[axis]);
    w.size[axis] = static_cast<int>(g.output[axis]);
    w.padding[axis] = static_cast<int>(g.padding[axis]);
  }
  return w;
}

/// Cuts the images into tiles of up to 128 pixels, and lays out shared memory.
void cut(RowTiles& w, std::int64_t batch) {
  constexpr int most_columns = 64, most_pixels = 128;
  w.columns = ceil_divide(ceil_divide(w.input[2], ceil_divide(w.input[2], most_columns)), RowTiles::depth) * RowTiles::depth;
  const int column_tiles = ceil_divide(w.input[2], w.columns), row_tiles = ceil_divide(w.size[1], most_pixels / w.columns);
  w.rows = ceil_divide(w.size[1], row_tiles);
  w.row_tiles = cuda::Divisor(row_tiles);
  w.column_tiles = cuda::Divisor(column_tiles);
  w.depths = cuda::Divisor(w.size[0]);
  w.tiles = batch * w.size[0] * column_tiles * row_tiles;
  w.slots = RowTiles::stages * (w.rows + RowTiles::side - 1);
  constexpr int at_once = RowTiles::stagers * 16 / RowTiles::channels;  // columns
  w.lines = std::max(1, at_once / w.columns);
  // 16 bytes more than they hold, such that what a warp writes meets no bank twice.
  w.group_bytes = w.columns * 32 + 16;
  w.slot_bytes = w.group_bytes * RowTiles::channels / 8;
  w.gradient_bytes = w.rows * (w.columns + RowTiles::side - 1) * RowTiles::gradient_pixel;
  w.shared_bytes = RowTiles::barrier_bytes + w.slots * w.slot_bytes + RowTiles::stages * w.gradient_bytes;
}

/// Blocks of each kind, such that they take the fewest clocks, estimated.
int shares_of(const RowTiles& w, int multiprocessors) {
  constexpr int most_rounds = 4;
  constexpr double pixel_clocks = 48, round_clocks = 5000, sum_clocks = 1. / 220;
  const auto clocks = [&](int shares) {
    const int rounds = ceil_divide(std::int64_t{shares} * w.kinds(), multiprocessors);
    return rounds * (ceil_divide(w.tiles, shares) * pixel_clocks * w.rows * w.columns + round_clocks) +
           sum_clocks * shares * static_cast<double>(w.items());
  };
  int best = 1;
  for (int shares = 2; shares <= w.tiles && shares * w.kinds() <= most_rounds * multiprocessors; ++shares) {
    if (clocks(shares) < clocks(best)) best = shares;
  }
  return best;
}

}  // namespace

std::optional<RowTiles> RowTiles::of(const ConvolutionGeometry& geometry, const cuda::DeviceProperties& device) {
  std::optional<RowTiles> tiles = sizes_of(geometry);
  if (!tiles) return std::nullopt;
  RowTiles& w = *tiles;
  cut(w, geometry.batch);
  if (w.shared_bytes > static_cast<int>(device.shared_per_block) || w.tiles > INT_MAX) return std::nullopt;
  w.shares = shares_of(w, device.multiprocessors);
  w.share_tiles = static_cast<int>(w.tiles / w.shares);
  w.longer_shares = static_cast<int>(w.tiles % w.shares);
  return tiles;
}

double RowTiles::used_part() const {
  const double of_channels = static_cast<double>(out_channels) * in_channels / (output_blocks * input_blocks * channels * channels);
  const double of_rows = static_cast<double>(size[1]) / (row_tiles.value<int>() * rows);
  return of_channels * of_rows * input[2] / (column_tiles.value<int>() * columns);
}

}  // namespace frit::ops
