#pragma once

#include <optional>

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/runtime.h"
#include "frit/core/half.h"
#include "frit/ops/libraries/convolution_geometry.h"

namespace frit::ops {

/// How the weight gradient of a convolution with 3 x 3 taps at each depth of its kernel, and a stride of 1, is shared out to warpgroups.
/// Channels are innermost everywhere. A block has 64 channels of either image and the 9 taps of one depth. It goes down strips of columns
/// tile by tile, which are some rows of the gradient, and keeps the rows of the input that they meet in a ring in shared memory, so that
/// each is brought and transposed once. A strip has the input's columns to itself, and the gradient's that they meet, which are two more.
struct RowTiles {
  static constexpr int side = 3, channels = 64;           ///< of a block, in either image
  static constexpr int warpgroups = side, stagers = 128;  ///< that multiply, one a column of taps; threads that stage
  static constexpr int threads = warpgroups * 128 + stagers;
  static constexpr int depth = 8;                            ///< columns of one product
  static constexpr int stages = 2;                           ///< tiles in shared memory
  static constexpr int gradient_pixel = (channels + 8) * 4;  ///< bytes to the next, such that a warp's reads meet no bank twice
  static constexpr int barrier_bytes = 64;

  int out_channels, in_channels;
  int input[3], size[3], padding[3], depth_taps;  ///< size: of the output
  int output_blocks, input_blocks;                ///< a kind of block has one of each, and one of the kernel's depths
  int rows, columns;                              ///< of a tile: columns of the input, which are a multiple of 8
  cuda::Divisor row_tiles, column_tiles, depths;
  std::int64_t tiles;                      ///< of all samples
  int shares, share_tiles, longer_shares;  ///< of the tiles: blocks of each kind; the first ones have a tile more than the others
  int slots, lines;                        ///< rows in the ring; those that are brought at once, where they are short
  int group_bytes, slot_bytes, gradient_bytes, shared_bytes;

  FRIT_HOST_DEVICE int kinds() const { return output_blocks * input_blocks * depth_taps; }
  FRIT_HOST_DEVICE int taps() const { return depth_taps * side * side; }
  /// What the blocks of a share leave: a whole gradient.
  FRIT_HOST_DEVICE int items() const { return out_channels * taps() * in_channels; }
  std::size_t scratch_bytes() const { return sizeof(float) * static_cast<std::size_t>(shares) * static_cast<std::size_t>(items()); }
  /// The part of the products that are asked for.
  double used_part() const;

  /// Nothing where the geometry does not fit.
  static std::optional<RowTiles> of(const ConvolutionGeometry& geometry, const cuda::DeviceProperties& device);
};

/// Of a kind of block: its first channels and its depth of the kernel.
struct RowBlock {
  int output, input, depth_tap;

  FRIT_HOST_DEVICE RowBlock(const RowTiles& w, int kind)
      : output(kind % w.output_blocks * RowTiles::channels),
        input(kind / w.output_blocks % w.input_blocks * RowTiles::channels),
        depth_tap(kind / (w.output_blocks * w.input_blocks)) {}
};

}  // namespace frit::ops
