#pragma once

#include <cfloat>
#include <optional>

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp_backward.cuh"
#include "frit/ops/chain/instances/packed/subpixel_logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/chain/schedules/strip_tiles.cuh"

namespace frit::ops {

// The convolution and what follows it in one pass over the image, on tensor cores. A block stages the pixels that the taps of a tile of
// positions take. Of each 8 positions a warp computes some places' channels, sums (64 output channels, 8 positions), so that two threads
// have all channels of a place in two positions: the logsumexp takes a shuffle, and what the convolution gives is never stored.

/// Tiles of positions, with the places of a block in groups. A strip is a row.
struct SubpixelTiles : SubpixelLogsumexpKernels, StripTiles<StagedTaps> {
  using StagedTaps::width;
  using Vectors = TapVectors<2>;
  static_assert(warps >= most_groups && Vectors::most * width == columns);
  /// To a multiprocessor, as registers allow.
  static constexpr int forward_blocks(bool halves) { return halves ? 5 : 4; }
  static constexpr int backward_blocks(bool halves) { return halves ? 3 : 2; }

  int block[3], offset[3], output[3];  ///< as BlockAttributes
  Vectors vectors;

  /// Nothing if there is no kernel for this.
  static std::optional<SubpixelTiles> of(const Tensor& image, const TensorType& weight, const SubpixelLogsumexpAttributes& attributes);

  __device__ std::int64_t sample_size() const { return static_cast<std::int64_t>(output[0]) * output[1] * output[2]; }
  FRIT_HOST_DEVICE int weight_elements() const { return (group_places * channels * columns) << log_channel_groups; }  ///< with unused ones

 private:
  explicit SubpixelTiles(const StripTiles& laid_out) : StripTiles(laid_out), vectors(*this, /*by_number=*/true) {}
};

/// Threads whose lane / 4 is q and q + 4 have the halves of place q's channels.
struct HalvesOfPlaces {
  __device__ static int place(int quarter) { return quarter % 4 * 2 + quarter / 4; }
};

template <class Stored>
using SubpixelProducts = TapWarp<Stored, 2, SubpixelTiles::group_places * SubpixelTiles::channels, /*known_pixel=*/0, HalvesOfPlaces>;

/// What a warp does with twice 8 positions at a time. Sums of a position are PixelSum<Half> for any dtype: their logarithm is the rough
/// one.
template <class Stored>
class SubpixelWarp : public SubpixelProducts<Stored> {
 public:
  using Base = SubpixelProducts<Stored>;
  using Base::convolve, Base::lane, Base::own, typename Base::Sums;
  static constexpr int channel_tiles = Base::channel_tiles;
  static_assert(2 * Base::thread_channels == SubpixelTiles::channels);

  __device__ SubpixelWarp(const Stored* weight, const SubpixelTiles& tiles)
      : Base(first_place(tiles) * SubpixelTiles::channels, tiles.vectors, tiles,
             [&](int out_channel, int, int vector) { return tiles.weights(weight, out_channel, vector); }),
        tiles_(tiles) {
    int rest = first_place(tiles) + lane() / 4 % 4;
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      first_[axis] = rest % tiles.block[axis] - tiles.offset[axis];
      rest /= tiles.block[axis];
    }
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  /// Which half of the channels the thread has, and which of its two positions is its own.
  __device__ static int half() { return lane() / 16; }

  /// The exponentials of what the convolution gives, times a common factor for each position; and of the thread's own positions, the sums
  /// of these over all channels with the factors' logarithms.
  __device__ void exponentiate(Sums (&sums)[2], PixelSum<Half> (&totals)[2], const Stored* positions) const {
    constexpr float start[Base::thread_channels] = {};
    convolve(sums, start, positions);
    bool held = true;  // by float, without a factor
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      totals[b] = {0, sum_of_exponentials(sums[b], {0, 0})};
      held &= totals[b].sum > 0x1p-100f && totals[b].sum < 0x1p100f;
    }
    if (__all_sync(0xffffffffu, held)) return;
    convolve(sums, start, positions);
#pragma unroll
    for (int b = 0; b < 2; ++b) totals[b] = shifted_exponentials(sums[b]);
  }

  /// Multiplies what `exponentiate` left by the factors that the threads have for their own positions.
  __device__ void scale(Sums& sums, float factor) const {
    const float other = __shfl_xor_sync(0xffffffffu, factor, 16), factors[2] = {half() == 0 ? factor : other, half() == 0 ? other : factor};
#pragma unroll
    for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] *= factors[i % 2];
    }
  }

  /// Where the results of the thread's own positions lie in the sample's output, for twice 8 positions from `column` on; -1 if it is cut
  /// off.
  __device__ void places(int (&places)[2], const OutputTile& tile, int row, int column) const {
    const int z = tile.depth * tiles_.block[0] + first_[0], y = (tile.row + row) * tiles_.block[1] + first_[1],
              x = (tile.column + column + 2 * own() + half()) * tiles_.block[2] + first_[2];
    const bool line = static_cast<unsigned>(z) < static_cast<unsigned>(tiles_.output[0]) &&
                      static_cast<unsigned>(y) < static_cast<unsigned>(tiles_.output[1]);
    const int begin = (z * tiles_.output[1] + y) * tiles_.output[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int element = x + b * SubpixelTiles::positions_at_once * tiles_.block[2];
      places[b] = line && static_cast<unsigned>(element) < static_cast<unsigned>(tiles_.output[2]) ? begin + element : -1;
    }
  }

 private:
  /// Of the warp's.
  __device__ static int first_place(const SubpixelTiles& tiles) { return tiles.channel_group_of(warp()) * SubpixelTiles::group_places; }
  /// The exponentials less the shifts of both positions; returns the own one's sum.
  __device__ float sum_of_exponentials(Sums& sums, float2 shift) const {
    float part[4];
#pragma unroll
    for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[j][i] = fast_exponential(sums[j][i] - (i % 2 == 0 ? shift.x : shift.y));
        part[i] = j == 0 ? sums[j][i] : part[i] + sums[j][i];
      }
    }
    const float total[2] = {part[0] + part[2], part[1] + part[3]};
    const float others = __shfl_xor_sync(0xffffffffu, half() == 0 ? total[1] : total[0], 16);
    return (half() == 0 ? total[0] : total[1]) + others;
  }
  /// The exponentials less the positions' largest sums; of the own one, their sum with the shift.
  __device__ PixelSum<Half> shifted_exponentials(Sums& sums) const {
    float2 largest = {sums[0][0], sums[0][1]};
#pragma unroll
    for (int j = 0; j < channel_tiles; ++j) {
      largest = {fmaxf(largest.x, fmaxf(sums[j][0], sums[j][2])), fmaxf(largest.y, fmaxf(sums[j][1], sums[j][3]))};
    }
    const float2 shift = {shift_of(fmaxf(largest.x, __shfl_xor_sync(0xffffffffu, largest.x, 16))),
                          shift_of(fmaxf(largest.y, __shfl_xor_sync(0xffffffffu, largest.y, 16)))};
    const float sum = sum_of_exponentials(sums, shift);
    // A gradient of 0 may meet an infinite exponential; one that counts is NaN then.
#pragma unroll
    for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] = fminf(sums[j][i], FLT_MAX);
    }
    return {half() == 0 ? shift.x : shift.y, sum};
  }

  const SubpixelTiles& tiles_;
  int first_[3];  ///< of the output in block 0
};

}  // namespace frit::ops
