#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/weight_gradient/tap_windows.cuh"
#include "frit/ops/cuda/async_copy.cuh"

namespace frit::ops {

/// A tile of the gradient.
struct WindowTile {
  std::int64_t sample;
  int depth, row, column;

  __device__ WindowTile(const TapWindows& w, std::int64_t number) {
    const auto n = static_cast<std::uint32_t>(number), place = w.depths.quotient(n), line = w.column_tiles.quotient(place);
    const std::uint32_t of_rows = w.row_tiles.quotient(line);
    depth = static_cast<int>(w.depths.remainder(n, place));
    column = static_cast<int>(w.column_tiles.remainder(place, line)) * w.columns;
    row = static_cast<int>(w.row_tiles.remainder(line, of_rows)) * w.rows;
    sample = of_rows;
  }
};

/// Starts copies of a box of pixels, of a block's channels, zeros for those that do not exist; body(pixel, body(row, column, to)).
template <class Stored, class Place>
__device__ void stage_pixels(std::uint32_t to, const Stored* image, int pixels, int channels, int block_channels, int first_channel,
                             bool any, const Place& place) {
  constexpr int width = cuda::vector_width<Stored>;
  const int vectors = block_channels / width, thread = static_cast<int>(threadIdx.x), vector = thread % vectors;
  const int channel = first_channel + vector * width;
  any = any && channel < channels;
  for (int pixel = thread / vectors; pixel < pixels; pixel += static_cast<int>(blockDim.x) / vectors) {
    int from = 0, bytes = 0;
    const bool present = place(pixel, from, bytes) && any;
    cuda::copy_bytes_or_zeros<16>(to + static_cast<std::uint32_t>(bytes + vector * 16), present ? image + from * channels + channel : image,
                                  present);
  }
}

template <class Stored>
__device__ void stage_gradient(std::uint32_t to, const Stored* gradient, const TapWindows& w, const WindowTile& tile, int channel) {
  const Stored* const plane = gradient + (tile.sample * w.size[0] + tile.depth) * w.size[1] * w.size[2] * w.out_channels;
  const int log_columns = 31 - __clz(w.columns);
  stage_pixels(to, plane, w.rows * w.columns, w.out_channels, w.block_outputs, channel, true, [&](int pixel, int& from, int& bytes) {
    const int row = tile.row + (pixel >> log_columns), column = tile.column + (pixel & (w.columns - 1));
    from = row * w.size[2] + column;
    bytes = pixel * w.gradient_pixel;
    return row < w.size[1] && column < w.size[2];
  });
}

/// The plane of a depth of the window's taps.
template <class Stored>
__device__ void stage_plane(std::uint32_t to, const Stored* input, const TapWindows& w, const WindowTile& tile, const TapWindow& window,
                            int depth_tap) {
  const int depth = tile.depth * w.stride[0] - w.padding[0] + window.tap[0] + depth_tap;
  const int first_row = tile.row * w.stride[1] - w.padding[1] + window.tap[1];
  const int first_column = tile.column * w.stride[2] - w.padding[2] + window.tap[2];
  const bool any = static_cast<unsigned>(depth) < static_cast<unsigned>(w.input[0]);
  const Stored* const plane = any ? input + (tile.sample * w.input[0] + depth) * w.input[1] * w.input[2] * w.in_channels : input;
  const int odd = w.stride[2] - 1, row_bytes = w.input_row_bytes(), phase_bytes = w.phase_columns * w.input_pixel;
  stage_pixels(to, plane, w.plane_rows * w.plane_columns, w.in_channels, w.block_inputs, window.input, any,
               [&](int pixel, int& from, int& bytes) {
                 const auto n = static_cast<std::uint32_t>(pixel), line = w.plane_column.quotient(n);
                 const int y = static_cast<int>(line), x = static_cast<int>(w.plane_column.remainder(n, line));
                 const int row = first_row + y, column = first_column + x;
                 from = row * w.input[2] + column;
                 bytes = y * row_bytes + (x & odd) * phase_bytes + (x >> odd) * w.input_pixel;
                 return static_cast<unsigned>(row) < static_cast<unsigned>(w.input[1]) &&
                        static_cast<unsigned>(column) < static_cast<unsigned>(w.input[2]);
               });
}

}  // namespace frit::ops
