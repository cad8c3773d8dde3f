// How weight gradients are shared out to blocks and warps.

#include <algorithm>
#include <climits>

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/weight_gradient/tap_windows.cuh"

namespace frit::ops {
namespace {

int ceil_divide(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// Bytes from pixel to pixel, such that a warp's reads meet no bank twice.
int pixel_bytes(int channels, std::size_t element_bytes) {
  const int bytes = channels * static_cast<int>(element_bytes);
  if (element_bytes == 2) return bytes % 32 == 16 ? bytes : bytes + 16;
  return bytes % 128 == 32 || bytes % 128 == 96 ? bytes : bytes + 32;
}

/// Sizes that do not depend on tiles.
std::optional<TapWindows> sizes_of(const ConvolutionGeometry& g, std::size_t element_bytes) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(element_bytes);
  const auto fills_vectors = [&](std::int64_t groups) {
    return g.groups % groups == 0 && groups * g.in_channels % vector == 0 && groups * g.out_channels % vector == 0;
  };
  std::int64_t bundle = fewest_groups(g.groups, fills_vectors);
  // Groups of which a warp has several anyway are multiplied together.
  const auto fits_warp = [&](std::int64_t groups) { return groups * std::max(g.in_channels, g.out_channels) <= TapWindows::warp_outputs; };
  for (std::int64_t more = bundle + 1; more <= g.groups && fits_warp(more); ++more) {
    if (fills_vectors(more)) bundle = more;
  }
  const bool indexed = product(g.input) * g.in_channels * g.groups <= INT_MAX && product(g.output) * g.out_channels * g.groups <= INT_MAX;
  if (!fills_vectors(bundle) || !indexed || g.batch == 0 || product(g.input) == 0 || product(g.output) == 0) return std::nullopt;
  TapWindows w{};
  w.group_outputs = static_cast<int>(g.out_channels);
  w.group_inputs = static_cast<int>(g.in_channels);
  w.out_channels = static_cast<int>(bundle * g.out_channels);
  w.in_channels = static_cast<int>(bundle * g.in_channels);
  w.bundles = static_cast<int>(g.groups / bundle);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const bool fits = g.dilation[axis] == 1 && g.kernel[axis] <= 5 && g.stride[axis] <= 2 && g.padding[axis] < INT_MAX / 2;
    if (!fits) return std::nullopt;
    w.input[axis] = static_cast<int>(g.input[axis]);
    w.size[axis] = static_cast<int>(g.output[axis]);
    w.kernel[axis] = static_cast<int>(g.kernel[axis]);
    w.stride[axis] = static_cast<int>(g.stride[axis]);
    w.padding[axis] = static_cast<int>(g.padding[axis]);
    w.windows[axis] = ceil_divide(w.kernel[axis], TapWindows::side);
  }
  if (w.stride[1] != w.stride[2]) return std::nullopt;
  w.block_depths = std::min(w.kernel[0], TapWindows::side);
  w.depth = static_cast<int>(32 / element_bytes);
  return w;
}

/// Cuts the gradient into tiles, and lays out shared memory.
void cut(TapWindows& w, std::int64_t batch, std::size_t element_bytes, int most_shared_bytes) {
  const int row_tiles = ceil_divide(w.size[1], w.rows), column_tiles = ceil_divide(w.size[2], w.columns);
  w.row_tiles = cuda::Divisor(row_tiles);
  w.column_tiles = cuda::Divisor(column_tiles);
  w.depths = cuda::Divisor(w.size[0]);
  w.tiles = batch * row_tiles * column_tiles * w.size[0];
  w.plane_rows = (w.rows - 1) * w.stride[1] + TapWindows::side;
  w.plane_columns = (w.columns - 1) * w.stride[2] + TapWindows::side;
  w.phase_columns = ceil_divide(w.plane_columns, w.stride[2]);
  w.plane_column = cuda::Divisor(w.plane_columns);
  w.gradient_pixel = pixel_bytes(w.block_outputs, element_bytes);
  w.input_pixel = pixel_bytes(w.block_inputs, element_bytes);
  w.gradient_bytes = w.rows * w.columns * w.gradient_pixel;
  w.plane_bytes = w.plane_rows * w.input_row_bytes();
  w.new_planes = std::min(w.stride[0], w.block_depths);
  // The next tile's planes come while one is worked on; where there is room, also those of one that begins at another place.
  const auto bytes = [&](int planes) { return 2 * w.gradient_bytes + planes * w.plane_bytes; };
  w.planes = 2 * w.block_depths;
  if (bytes(w.planes) > most_shared_bytes) w.planes = w.block_depths + w.new_planes;
  w.shared_bytes = bytes(w.planes);
  for (int tap = 0; tap < TapWindows::side; ++tap) {
    w.tap_bytes[tap] = (tap % w.stride[2] * w.phase_columns + tap / w.stride[2]) * w.input_pixel;
  }
}

}  // namespace

std::optional<TapWindows> TapWindows::with(const ConvolutionGeometry& geometry, std::size_t element_bytes,
                                           const cuda::DeviceProperties& device, int block_outputs, int block_inputs, int rows,
                                           int columns) {
  const int most_shared_bytes = static_cast<int>(device.shared_per_block);
  std::optional<TapWindows> windows = sizes_of(geometry, element_bytes);
  if (!windows || columns % windows->depth != 0) return std::nullopt;
  TapWindows& w = *windows;
  w.block_outputs = block_outputs;
  w.block_inputs = block_inputs;
  w.output_blocks = ceil_divide(w.out_channels, block_outputs);
  w.input_blocks = ceil_divide(w.in_channels, block_inputs);
  w.depth_warps = w.block_depths;
  w.output_warps = block_outputs / warp_outputs;
  w.input_warps = block_inputs / warp_inputs;
  if (w.roles() > most_warps) return std::nullopt;
  w.splits = std::min(most_warps / w.roles(), columns / w.depth);
  // The same of all, where a multiple of 4 warps allows it.
  while (columns / w.depth % w.splits != 0) --w.splits;
  w.rows = rows;
  w.columns = columns;
  cut(w, geometry.batch, element_bytes, most_shared_bytes);
  if (w.shared_bytes > most_shared_bytes || w.tiles > INT_MAX) return std::nullopt;
  w.shares = static_cast<int>(std::clamp<std::int64_t>(device.multiprocessors / w.kinds(), 1, w.tiles));
  return windows;
}

// Fitted to 80 measurements on an H200, most within 10 %: a row of the input costs as much whether all of a window's rows of taps meet it
// or one.
double TapWindows::cost(std::size_t element_bytes, int multiprocessors) const {
  constexpr double memory_clock_bytes = 19, tile_clocks = 2700;
  const double row_clocks = element_bytes == 2 ? 105 : 135;
  const int strips = ceil_divide(columns / depth, splits), scheduler_warps = ceil_divide(warps(), 4);
  const double products = row_clocks * strips * scheduler_warps * plane_rows;
  const double staged =
      static_cast<double>(element_bytes) * (rows * columns * block_outputs + new_planes * plane_rows * plane_columns * block_inputs);
  const int rounds = ceil_divide(tiles, shares) * ceil_divide(std::int64_t{kinds()} * shares, multiprocessors);
  return rounds * (products + staged / memory_clock_bytes + tile_clocks);
}

double TapWindows::used_part(std::int64_t batch) const {
  return static_cast<double>(batch * size[0] * size[1] * size[2]) / static_cast<double>(tiles * rows * columns);
}

double TapWindows::used_taps() const {
  const int held_taps = windows[0] * block_depths * windows[1] * side * windows[2] * side;
  return static_cast<double>(kernel[0] * kernel[1] * kernel[2]) / held_taps;
}

std::optional<TapWindows> TapWindows::of(const ConvolutionGeometry& geometry, std::size_t element_bytes,
                                         const cuda::DeviceProperties& device) {
  std::optional<TapWindows> best;
  for (const int outputs : {32, 64}) {
    for (const int inputs : {8, 16, 32, 64}) {
      for (const int rows : {4, 8, 16}) {
        for (const int columns : {8, 16, 32, 64}) {
          const auto windows = with(geometry, element_bytes, device, outputs, inputs, rows, columns);
          const auto cost = [&](const TapWindows& w) { return w.cost(element_bytes, device.multiprocessors); };
          if (windows && (!best || cost(*windows) < cost(*best))) best = windows;
        }
      }
    }
  }
  return best;
}

}  // namespace frit::ops
