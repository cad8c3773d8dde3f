// How weight gradients of convolutions with few channels and taps are cut into tiles.

#include <algorithm>

#include "frit/ops/convolution/tiles/tap_tiles.cuh"

namespace frit::ops {
namespace {

int ceil_divide(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// Elements of the input that a thread copies at once.
int unit_width(const TapTiles& t, std::size_t element_bytes) { return t.doubled() ? t.channels : static_cast<int>(16 / element_bytes); }

/// The sizes, without tiles.
std::optional<TapTiles> sizes_of(const ConvolutionGeometry& g, std::size_t element_bytes) {
  constexpr auto all_one = [](const ImageAxes& axes) { return std::ranges::all_of(axes, [](std::int64_t size) { return size == 1; }); };
  constexpr std::int64_t most_products = 1024;
  const std::int64_t vector = 16 / static_cast<std::int64_t>(element_bytes);
  const bool doubled = element_bytes == 2 && g.in_channels == 4, fits = doubled || g.in_channels % vector == 0;
  if (g.groups != 1 || !all_one(g.stride) || !all_one(g.dilation) || !fits) return std::nullopt;
  if (product(g.output) == 0 || product(g.kernel) * g.in_channels > most_products) return std::nullopt;
  TapTiles t{};
  t.samples = g.batch;
  t.outputs = static_cast<int>(g.out_channels);
  t.channels = static_cast<int>(g.in_channels);
  t.block_step = doubled ? 16 : 8;
  ImageAxes input = g.input, size = g.output;
  if (product(g.kernel) == 1 && g.input == g.output && g.padding == ImageAxes{}) {  // all pixels are one row
    input = size = {1, 1, product(g.input) * g.batch};
    t.samples = 1;
  } else if (product(input) * std::max(g.in_channels, g.out_channels) > INT32_MAX) {
    return std::nullopt;
  }
  if (product(input) > INT32_MAX || product(size) > INT32_MAX) return std::nullopt;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    t.input[axis] = static_cast<int>(input[axis]);
    t.size[axis] = static_cast<int>(size[axis]);
    t.kernel[axis] = static_cast<int>(g.kernel[axis]);
    t.padding[axis] = static_cast<int>(g.padding[axis]);
  }
  return t;
}

/// Cuts into tiles of at most so many pixels, a power of 2, whose rows have a multiple of `multiple` and take `further` pixels more of the
/// input: as wide ones as do not take more of that than threads hold. False if there are none.
bool cut(TapTiles& t, int pixels, int multiple, int further, std::size_t element_bytes) {
  t.log_width = 0;
  while (1 << t.log_width < multiple || (1 << t.log_width < t.size[2] && 2 << t.log_width <= pixels)) ++t.log_width;
  const auto most_rows = [&] {
    t.input_width = (1 << t.log_width) + further;
    const int units = t.kernel[0] * t.input_width * (t.channels / unit_width(t, element_bytes));  // to a row
    return TapTiles::threads * TapTiles::held / units - (t.kernel[1] - 1);
  };
  for (; most_rows() <= 0 && 1 << t.log_width > multiple; --t.log_width) t.stretched = true;
  t.rows = std::min({pixels >> t.log_width, t.size[1], most_rows()});
  if (t.rows <= 0) return false;
  const int row_tiles = ceil_divide(t.size[1], t.rows), column_tiles = ceil_divide(t.size[2], std::int64_t{1} << t.log_width);
  t.one_column = column_tiles == 1;
  t.row_tiles = cuda::Divisor(row_tiles);
  t.column_tiles = cuda::Divisor(column_tiles);
  t.rows = ceil_divide(t.size[1], row_tiles);
  t.input_rows = t.rows + t.kernel[1] - 1;
  t.count = t.size[0] * row_tiles * column_tiles;
  t.tile_bytes = t.kernel[0] * t.input_rows * t.input_width * t.input_step * static_cast<int>(element_bytes);
  return true;
}

int aligned(int bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

std::optional<TapTiles> TapTiles::of_weight_gradient(const ConvolutionGeometry& geometry, std::size_t element_bytes) {
  std::optional<TapTiles> tiles = sizes_of(geometry, element_bytes);
  if (!tiles) return std::nullopt;
  TapTiles& t = *tiles;
  const bool halves = element_bytes == 2;
  if (t.outputs != 16 && t.outputs != 32 && t.outputs != 64 && t.outputs != 128) return std::nullopt;
  t.group = ceil_divide(t.kernel[2] * t.channels, 16);
  t.columns = t.kernel[0] * t.kernel[1] * t.group;
  t.channel_warps = t.outputs / 16;
  const auto share_columns = [&](int most) {
    for (t.column_warps = 1; t.columns > t.column_warps * most; t.column_warps *= 2) {
      if (t.channel_warps * t.column_warps >= warps) return false;
    }
    return true;
  };
  t.stretched = !share_columns(columns_of_a_warp[1]);
  if (t.stretched && !share_columns(columns_of_a_warp[2])) return std::nullopt;
  t.warp_columns = *std::ranges::lower_bound(columns_of_a_warp, ceil_divide(t.columns, t.column_warps));
  t.pixel_warps = warps / (t.channel_warps * t.column_warps);
  t.input_step = t.doubled() ? 8 : t.channels;
  if ((t.kernel[2] == 1 && !t.doubled()) || t.channels % 16 == 0) {  // else a block of columns has taps that follow each other as pixels do
    while (halves ? t.input_step % 16 != 8 : t.input_step % 32 != 8 && t.input_step % 32 != 24) t.input_step += halves ? 8 : 4;
  }
  // As many pixels as the threads hold.
  const int pixel_vectors = t.outputs * static_cast<int>(element_bytes) / 16, further = ceil_divide(t.group * 16, t.channels) - 1;
  if (!cut(t, threads * held / pixel_vectors, halves ? 16 : 8, further, element_bytes)) return std::nullopt;
  t.gradient_step = t.outputs + 8;
  t.further_pixels = threads / pixel_vectors;
  for (int i = 0; i < held; ++i) {
    const int pixel = i * t.further_pixels, row = pixel >> t.log_width;
    t.further_from[i] = (row * t.size[2] + pixel - (row << t.log_width)) * t.outputs;
  }
  t.gradient_bytes = t.pixels() * t.gradient_step * static_cast<int>(element_bytes);
  t.tile_bytes = aligned(t.gradient_bytes + t.tile_bytes);
  t.shared_bytes = std::max((ahead + 1) * t.tile_bytes, t.outputs * t.row_columns() * static_cast<int>(sizeof(float)));
  return tiles;
}

}  // namespace frit::ops
