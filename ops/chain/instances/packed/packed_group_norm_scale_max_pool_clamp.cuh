#pragma once

#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.cuh"
#include "frit/ops/chain/instances/packed/packed_group_norm_scale_max_pool_clamp.h"
#include "frit/ops/chain/schedules/strip_tiles.cuh"

namespace frit::ops {

// The convolution and what follows it in one pass over the image. The sign of the factor in front of the pool is known before the
// statistics are, so that the pass keeps of each window the element that will be its maximum, sums up all, and stores no other.

/// Tiles whose strips are rows of windows, and what is left below the last.
template <class Taps>
struct WindowTiles : StripTiles<Taps> {
  using Kernels = PackedGroupNormPoolKernels;
  static_assert(StripTiles<Taps>::warps >= Kernels::most_channel_groups);

  int channels;               ///< K
  int window[2], windows[2];  ///< size and number

  /// Tiles of about so many rows.
  WindowTiles(const Taps& taps, int wanted_rows, int tile_columns, const Tensor& image, const TensorType& weight,
              const PackedGroupNormPoolAttributes& a)
      : StripTiles<Taps>(taps, weight.shape[0] / Kernels::out_channels, rows_of_windows(a, wanted_rows), window_height(a), tile_columns),
        channels(static_cast<int>(weight.shape[0])) {
    const GroupNormPoolGeometry geometry(convolved_shape(image.shape(), weight.shape, a.im2col), a.chain);
    for (std::size_t axis = 0; axis < 2; ++axis) {
      window[axis] = static_cast<int>(geometry.pool.kernel[axis + 1]);
      windows[axis] = static_cast<int>(geometry.pool.output[axis + 1]);
    }
    FRIT_CHECK(this->count < INT32_MAX / 2);
  }

  FRIT_HOST_DEVICE int sample_tiles() const { return this->column_tiles.template value<int>() * this->row_tiles.template value<int>(); }
  FRIT_HOST_DEVICE int sample_windows() const { return windows[0] * windows[1]; }
  /// The first of a warp's output channels.
  __device__ int first_channel_of(int warp) const { return this->channel_group_of(warp) * Kernels::out_channels; }
  /// Of a share's entry for a channel, of each tile's.
  __device__ std::int64_t entry(int tile, int share, int channel) const {
    return (static_cast<std::int64_t>(tile) * this->shares() + share) * channels + channel;
  }
  /// The place of a window's first channel, channels being innermost.
  __device__ std::int64_t window_place(int sample, int row, int column) const {
    return (static_cast<std::int64_t>(sample) * sample_windows() + row * windows[1] + column) * channels;
  }

  static int window_height(const PackedGroupNormPoolAttributes& a) { return static_cast<int>(a.chain.kernel_size[0]); }
  static int rows_of_windows(const PackedGroupNormPoolAttributes& a, int wanted_rows) {
    return std::max(1, wanted_rows / window_height(a));
  }
};

/// Tiles for tensor cores.
template <int loads>
struct PooledTaps : WindowTiles<StagedTaps> {
  static constexpr int wanted_rows = 16;

  TapVectors<loads> vectors;

  PooledTaps(const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a)
      : PooledTaps(laid_out(image, weight, a), image, weight, a) {}

  FRIT_HOST_DEVICE int weight_elements() const { return channels * TapVectors<loads>::most * width; }  ///< with unused columns

 private:
  PooledTaps(const StagedTaps& staged, const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a)
      : WindowTiles(staged, wanted_rows, staged.staged[2] - staged.taps[2] + 1, image, weight, a), vectors(*this) {}
  /// As wide as the image, as far as there is room.
  static StagedTaps laid_out(const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a) {
    constexpr std::size_t room = 40 << 10;
    StagedTaps staged(image, weight.shape[1], a.im2col);
    for (int blocks = 16; blocks >= 4; blocks /= 2) {
      if (blocks > 4 && staged.output_size[2] <= blocks / 2 * positions_at_once) continue;
      staged.lay_out(1, rows_of_windows(a, wanted_rows) * window_height(a), blocks * positions_at_once, size_of(weight.dtype),
                     TapVectors<loads>::row_bank(staged), TapVectors<loads>::depth_bank(staged));
      if (staged.staged_bytes <= room) break;
    }
    return staged;
  }
};

/// What the pass leaves of a window, channels innermost.
template <class Stored>
struct WindowElements {
  Stored* elements;       // (N, windows, C)
  std::uint8_t* numbers;  // likewise, or null
};

/// Sums over some of a channel's elements less a pivot.
struct PivotSums {
  float pivot, sum, squares;
  std::int32_t count;
};

/// A warp with its part of the channels.
template <class Stored, int loads>
struct ChannelWarp : TapWarp<Stored, loads, PackedGroupNormPoolKernels::out_channels> {
  using Base = TapWarp<Stored, loads, PackedGroupNormPoolKernels::out_channels>;
  using Tiles = PooledTaps<loads>;
  static constexpr int thread_channels = Base::thread_channels;

  int share, channel;  ///< the warp's share of a tile; the thread's first channel

  /// The weight times factors, one for each of the thread's output channels.
  __device__ ChannelWarp(const Stored* weight, const Tiles& tiles, const float (&factors)[thread_channels])
      : Base(tiles.first_channel_of(warp()), tiles.vectors, tiles,
             [&](int out_channel, int i, int vector) { return tiles.weights(weight, out_channel, vector, factors[i]); }),
        share(tiles.share_of(warp())),
        channel(Base::thread_channel(Base::lane() / 4)) {}

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
};

}  // namespace frit::ops
