#pragma once

#include "frit/ops/convolution/tiles/output_tiles.cuh"

namespace frit::ops {

/// How the positions of all samples are cut into tiles of one depth, and a tile into strips of rows. Of a block's warps some share the
/// strips, the others have other output channels. `Taps` say how the pixels are staged.
template <class Taps>
struct StripTiles : Taps {
  static constexpr int threads = 128, warps = threads / cuda::warp_size, positions_at_once = 8;

  int log_channel_groups;                              ///< of the output
  int strips, strip_rows;                              ///< of a tile; of a strip
  int log_blocks;                                      ///< of 8 columns, that a strip has side by side
  int size[3];                                         ///< of a tile along each axis
  cuda::Divisor column_tiles, row_tiles, depth_tiles;  ///< along each axis
  int count;                                           ///< of tiles; INT32_MAX if there are more

  /// The numbers of groups and of blocks are powers of 2.
  StripTiles(const Taps& taps, std::int64_t channel_groups, int strips_, int strip_rows_, int columns)
      : Taps(taps),
        log_channel_groups(std::countr_zero(static_cast<unsigned>(channel_groups))),
        strips(strips_),
        strip_rows(strip_rows_),
        log_blocks(std::countr_zero(static_cast<unsigned>(columns / positions_at_once))),
        size{1, strips * strip_rows, columns},
        column_tiles(tiles_along(2)),
        row_tiles(tiles_along(1)),
        depth_tiles(tiles_along(0)),
        count(
            static_cast<int>(std::min<std::int64_t>(this->planes.samples * tiles_along(0) * tiles_along(1) * tiles_along(2), INT32_MAX))) {}

  FRIT_HOST_DEVICE int shares() const { return warps >> log_channel_groups; }
  __device__ int share_of(int warp) const { return warp >> log_channel_groups; }
  __device__ int channel_group_of(int warp) const { return warp & ((1 << log_channel_groups) - 1); }

 private:
  std::int64_t tiles_along(int axis) const { return std::max(1, (this->output_size[axis] + size[axis] - 1) / size[axis]); }
};

/// Calls body(row, column, the first pixel of its first row) for each stretch of `blocks` times 8 columns of the tile's strips that is the
/// warp's.
template <int blocks, class Tiles, class Stored, class Body>
__device__ void for_each_stretch(const Tiles& tiles, const OutputTile& tile, const Stored* staged, const Body& body) {
  const int share = tiles.share_of(static_cast<int>(threadIdx.x) / cuda::warp_size);
  const int log_stretches = tiles.log_blocks - std::countr_zero(static_cast<unsigned>(blocks));
#pragma unroll 1
  for (int item = share; item < tiles.strips << log_stretches; item += tiles.shares()) {
    const int strip = item >> log_stretches, row = strip * tiles.strip_rows;
    const int column = (item - (strip << log_stretches)) * blocks * Tiles::positions_at_once;
    if (tile.row + row >= tiles.output_size[1] || tile.column + column >= tiles.output_size[2]) continue;
    body(row, column, staged + row * tiles.row_step + column * tiles.pixel_step);
  }
}

}  // namespace frit::ops
