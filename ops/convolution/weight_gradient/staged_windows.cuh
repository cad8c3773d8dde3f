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

/// The threads that stage start copies of a box of pixels, of a block's channels, zeros for those that do not exist; body(pixel, body(row,
/// column, to)).
template <class Stored, class Place>
__device__ void stage_pixels(int thread, std::uint32_t to, const Stored* image, int pixels, int pitch, int channels, int block_channels,
                             int first_channel, bool any, const Place& place) {
  constexpr int width = cuda::vector_width<Stored>;
  const int vectors = block_channels / width, vector = thread % vectors;
  const int channel = first_channel + vector * width;
  any = any && channel < channels;
#pragma unroll 4
  for (int pixel = thread / vectors; pixel < pixels; pixel += TapWindows::stagers / vectors) {
    int from = 0, bytes = 0;
    const bool present = place(pixel, from, bytes) && any;
    cuda::copy_bytes_or_zeros<16>(to + static_cast<std::uint32_t>(bytes + vector * 16), present ? image + from * pitch + channel : image,
                                  present);
  }
}

template <class Stored>
__device__ void stage_gradient(int thread, std::uint32_t to, const Stored* gradient, const TapWindows& w, const WindowTile& tile,
                               int channel) {
  const Stored* const plane = gradient + (tile.sample * w.size[0] + tile.depth) * w.size[1] * w.size[2] * w.out_pitch;
  const int log_columns = 31 - __clz(w.columns);
  stage_pixels(thread, to, plane, w.rows * w.columns, w.out_pitch, w.out_channels, w.block_outputs, channel, true,
               [&](int pixel, int& from, int& bytes) {
                 const int row = tile.row + (pixel >> log_columns), column = tile.column + (pixel & (w.columns - 1));
                 from = row * w.size[2] + column;
                 bytes = pixel * w.gradient_pixel;
                 return row < w.size[1] && column < w.size[2];
               });
}

/// The plane of a depth of the window's taps.
template <class Stored>
__device__ void stage_plane(int thread, std::uint32_t to, const Stored* input, const TapWindows& w, const WindowTile& tile,
                            const TapWindow& window, int depth_tap) {
  const int depth = tile.depth * w.stride[0] - w.padding[0] + window.tap[0] + depth_tap;
  const int first_row = tile.row * w.stride[1] - w.padding[1] + window.tap[1];
  const int first_column = tile.column * w.stride[2] - w.padding[2] + window.tap[2];
  const bool any = static_cast<unsigned>(depth) < static_cast<unsigned>(w.input[0]);
  const Stored* const plane = any ? input + (tile.sample * w.input[0] + depth) * w.input[1] * w.input[2] * w.in_pitch : input;
  const int odd = w.stride[2] - 1, row_bytes = w.input_row_bytes(), phase_bytes = w.phase_columns * w.input_pixel;
  stage_pixels(thread, to, plane, w.plane_rows * w.plane_columns, w.in_pitch, w.in_channels, w.block_inputs, window.input, any,
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

/// All warps of the block wait for each other, those that stage and those that multiply at different places of the code, which
/// __syncthreads() does not allow.
__device__ inline void meet() { asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x) : "memory"); }

/// Some tiles in shared memory: two of the gradient, and the ring of planes that they meet.
struct WindowRing {
  std::uint32_t gradients, planes;
  int first, turn = 1;  ///< the plane that a tile's first taps meet; which gradient is its
  bool fresh = true;    ///< its planes are all new

  __device__ WindowRing(std::uint32_t memory, const TapWindows& w)
      : gradients(memory), planes(memory + static_cast<std::uint32_t>(2 * w.gradient_bytes)), first(w.planes - w.new_planes) {}

  /// To a tile, `begins` being the block's first. All threads of the block wait where new planes have no room next to those of the tile
  /// before.
  __device__ WindowTile advance(const TapWindows& w, std::int64_t number, bool begins) {
    const WindowTile tile(w, number);
    fresh = begins || tile.depth == 0;
    if (!begins && fresh && w.planes < 2 * w.block_depths) meet();
    first = wrapped(w, first + (fresh ? w.block_depths : w.new_planes));
    turn ^= 1;
    return tile;
  }
  __device__ std::uint32_t gradient(const TapWindows& w) const { return gradients + static_cast<std::uint32_t>(turn * w.gradient_bytes); }
  __device__ std::uint32_t plane(const TapWindows& w, int depth_tap) const {
    return planes + static_cast<std::uint32_t>(wrapped(w, first + depth_tap) * w.plane_bytes);
  }

 private:
  __device__ static int wrapped(const TapWindows& w, int plane) { return plane >= w.planes ? plane - w.planes : plane; }
};

/// What some warps do while the others multiply: bring the tiles, one ahead.
template <class Stored>
__device__ void stage_tiles(int thread, WindowRing ring, const Stored* gradient, const Stored* input, const TapWindows& w,
                            const TapWindow& window, std::int64_t begin, std::int64_t end) {
#pragma unroll 1
  for (std::int64_t number = begin; number < end; ++number) {
    const WindowTile tile = ring.advance(w, number, number == begin);
    stage_gradient(thread, ring.gradient(w), gradient, w, tile, window.output);
    for (int tap = ring.fresh ? 0 : w.block_depths - w.new_planes; tap < w.block_depths; ++tap) {
      stage_plane(thread, ring.plane(w, tap), input, w, tile, window, tap);
    }
    cuda::wait_for_copies();
    meet();
  }
}

}  // namespace frit::ops
