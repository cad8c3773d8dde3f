#pragma once

#include <optional>

#include "frit/ops/convolution/tiles/tap_warp.cuh"

namespace frit::ops {

/// Bytes of shared memory that so many blocks to a multiprocessor leave each; the device takes 1024 of them.
inline std::size_t shared_room(int blocks, int device) {
  return (cuda::properties(device).shared_per_block + 1024) / static_cast<std::size_t>(blocks) - 1024;
}

/// A box of positions whose pixels are staged at a time. Warps go through it in lines of neighbouring positions.
template <int loads>
struct OutputBox : StagedTaps {
  static constexpr int line_blocks = 4, line = line_blocks * 8;

  int size[3];                       ///< positions along each axis, whole lines
  cuda::Divisor row_lines, rows;     ///< of the box
  TapVectors<loads> vectors;

  OutputBox(const StagedTaps& taps, int depths, int rows_, int columns, std::size_t element_bytes)
      : StagedTaps(taps),
        size{depths, rows_, (columns + line - 1) / line * line},
        row_lines(size[2] / line),
        rows(rows_),
        vectors(laid_out(element_bytes)) {}

  /// Calls body(depth, row, column, offset) for each line that is the share's of so many: its first position, and where the pixels of that
  /// one begin in shared memory. The box begins at the given position.
  template <class Body>
  __device__ void for_each_line(int depth, int row, int column, int share, int shares, const Body& body) const {
    const int lines = row_lines.value<int>();
#pragma unroll 1
    for (int item = share; item < size[0] * size[1] * lines; item += shares) {
      const auto number = static_cast<std::uint32_t>(item), own = row_lines.quotient(number), d = rows.quotient(own);
      const int z = static_cast<int>(d), y = static_cast<int>(rows.remainder(own, d)),
                x = static_cast<int>(row_lines.remainder(number, own)) * line;
      if (depth + z >= output_size[0] || row + y >= output_size[1] || column + x >= output_size[2]) continue;
      body(depth + z, row + y, column + x, z * depth_step + y * row_step + x * pixel_step);
    }
  }

 private:
  const StagedTaps& laid_out(std::size_t element_bytes) {
    lay_out(size[0], size[1], size[2], element_bytes, TapVectors<loads>::row_bank(*this), TapVectors<loads>::depth_bank(*this));
    return *this;
  }
};

/// How the positions of all samples are cut into boxes a line wide.
template <int loads>
struct OutputTiles : OutputBox<loads> {
  cuda::Divisor column_tiles, row_tiles, depth_tiles;  ///< along each axis
  int count;                                           ///< of tiles

  /// `room`: bytes of shared memory.
  OutputTiles(const StagedTaps& taps, std::size_t element_bytes, std::size_t room) : OutputBox<loads>(fitting(taps, element_bytes, room)) {
    column_tiles = tiles_along(2), row_tiles = tiles_along(1), depth_tiles = tiles_along(0);
    count = static_cast<int>(this->planes.samples) * column_tiles.template value<int>() * row_tiles.template value<int>() *
            depth_tiles.template value<int>();
  }

 private:
  static int tiles_of(int positions, int size) { return (positions + size - 1) / size; }
  cuda::Divisor tiles_along(int axis) const { return cuda::Divisor(tiles_of(this->output_size[axis], this->size[axis])); }
  /// As fits the room and leaves the least work, of which a line of positions is so many pixels' worth.
  static OutputBox<loads> fitting(const StagedTaps& taps, std::size_t element_bytes, std::size_t room) {
    constexpr int line_pixels = 128, most_depths = 8, most_rows = 32;
    std::optional<OutputBox<loads>> best;
    std::int64_t least = 0;
    for (int depths = std::min(taps.output_size[0], most_depths); depths >= 1; --depths) {
      for (int rows = std::min(taps.output_size[1], most_rows); rows >= 1; --rows) {
        const int depth_tiles = tiles_of(taps.output_size[0], depths), row_tiles = tiles_of(taps.output_size[1], rows);
        const OutputBox<loads> box(taps, tiles_of(taps.output_size[0], depth_tiles), tiles_of(taps.output_size[1], row_tiles), 1,
                                   element_bytes);
        const std::int64_t work = static_cast<std::int64_t>(depth_tiles) * row_tiles *
                                  (box.staged[0] * box.staged[1] * box.staged[2] + box.size[0] * box.size[1] * line_pixels);
        const bool fits = box.staged_bytes <= room, smaller = !best || work < least;
        if (fits && smaller) best = box, least = work;
        if (fits) break;  // with more tiles there are more pixels
      }
    }
    return best ? *best : OutputBox<loads>(taps, 1, 1, 1, element_bytes);
  }
};

/// A tile's first position.
struct OutputTile {
  int sample, depth, row, column;

  template <class Tiles>
  __device__ OutputTile(const Tiles& tiles, int tile) {
    const auto number = static_cast<std::uint32_t>(tile), line = tiles.column_tiles.quotient(number),
               plane = tiles.row_tiles.quotient(line), own = tiles.depth_tiles.quotient(plane);
    sample = static_cast<int>(own);
    depth = static_cast<int>(tiles.depth_tiles.remainder(plane, own)) * tiles.size[0];
    row = static_cast<int>(tiles.row_tiles.remainder(line, plane)) * tiles.size[1];
    column = static_cast<int>(tiles.column_tiles.remainder(number, line)) * tiles.size[2];
  }
};

}  // namespace frit::ops
