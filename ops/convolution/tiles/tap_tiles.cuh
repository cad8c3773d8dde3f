#pragma once

#include <optional>

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/convolution/geometry.h"

namespace frit::ops {

/// A tile of a convolution's gradient: rows of pixels of one depth of a sample, from these on.
struct TilePlace {
  std::int64_t sample;
  int depth, row, column;
};

/// How the work of the weight gradient of a convolution with few channels and taps is cut into tiles. Channels are innermost everywhere.
struct TapTiles {
  static constexpr int threads = 256, warps = threads / 32, held = 4;  ///< held: 16 bytes that a thread has of either tile, at most
  static constexpr int columns_of_a_warp[] = {2, 5, 8};                ///< blocks of columns that multiply_taps has kernels for
  static constexpr int ahead = 2;                                      ///< tiles that are on their way while one is worked on

  std::int64_t samples;
  int outputs, channels;                         ///< of a pixel of the output, of the input
  int input[3], size[3], kernel[3], padding[3];  ///< size: of the output
  int log_width, rows;                           ///< a tile: so many rows of 2^log_width pixels
  bool one_column;                               ///< of tiles: each has whole rows
  cuda::Divisor column_tiles, row_tiles;         ///< along the rows and across them
  int count;                                     ///< of tiles, in a sample
  int input_rows, input_width;                   ///< what a tile takes of the input, of each depth
  int gradient_step, input_step;                 ///< from pixel to pixel in shared memory, in elements
  int further_pixels, further_from[held];        ///< from a thread's first vector of the gradient to its others: pixels; elements in memory
  int gradient_bytes, tile_bytes, shared_bytes;
  int columns, group;  ///< blocks of 16 columns: in all, and to the taps along a row
  int block_step;      ///< between their halves, in elements
  int warp_columns;    ///< blocks to a warp
  bool stretched;      ///< cut so that it fits at all: other kernels may be faster
  int channel_warps, column_warps, pixel_warps;

  /// For multiply_taps. Nothing where it does not fit.
  static std::optional<TapTiles> of_weight_gradient(const ConvolutionGeometry& geometry, std::size_t element_bytes);

  FRIT_HOST_DEVICE bool doubled() const { return block_step != 8; }
  FRIT_HOST_DEVICE int row_columns() const { return column_warps * warp_columns * 16; }
  FRIT_HOST_DEVICE int pixels() const { return rows << log_width; }
  __device__ TilePlace place(std::int64_t sample, int tile) const {
    const auto number = static_cast<std::uint32_t>(tile), line = column_tiles.quotient(number), depth = row_tiles.quotient(line);
    return {sample, static_cast<int>(depth), static_cast<int>(row_tiles.remainder(line, depth)) * rows,
            static_cast<int>(column_tiles.remainder(number, line)) << log_width};
  }
  /// Where in the input's tile the j-th block of columns begins.
  __device__ int column_offset(int j) const {
    const int row = j < columns ? j / group : 0, depth = row / kernel[1], first = (j < columns ? j % group : 0) * 2 * block_step;
    const int further = doubled() ? 0 : first / channels * (input_step - channels);
    return (depth * input_rows + row - depth * kernel[1]) * input_width * input_step + first + further;
  }
};

}  // namespace frit::ops
