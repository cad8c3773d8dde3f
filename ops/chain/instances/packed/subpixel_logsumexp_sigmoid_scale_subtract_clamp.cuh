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
//
// The weight's columns come in vectors of 4, channels of one tap. Which column is which depth of a product is chosen so that each thread of
// four reads the whole of two vectors.

/// Tiles of positions, with the places of a block in groups. A strip is a row.
struct SubpixelTiles : SubpixelLogsumexpKernels, StripTiles<StagedTaps> {
  using StagedTaps::width;
  static constexpr int vectors = columns / width;
  static_assert(warps >= most_groups && channels == 16 && width == 4, "as SubpixelWarp's products take them");
  /// To a multiprocessor, as registers allow.
  static constexpr int forward_blocks(bool halves) { return halves ? 5 : 4; }
  static constexpr int backward_blocks(bool halves) { return halves ? 3 : 2; }

  int block[3], offset[3], output[3];  ///< as BlockAttributes
  int vector_offset[vectors];          ///< of each vector of columns, from the position's first pixel

  /// Nothing if there is no kernel for this.
  static std::optional<SubpixelTiles> of(const Tensor& image, const TensorType& weight, const SubpixelLogsumexpAttributes& attributes);

  __device__ std::int64_t sample_size() const { return static_cast<std::int64_t>(output[0]) * output[1] * output[2]; }
  FRIT_HOST_DEVICE int weight_elements() const { return (group_places * channels * columns) << log_channel_groups; }  ///< with unused ones

 private:
  using StripTiles::StripTiles;
};

/// What a warp does with twice 8 positions at a time. Sums of a position are PixelSum<Half> for any dtype: their logarithm is the rough
/// one.
template <class Stored>
class SubpixelWarp {
 public:
  using Instruction = tensor_cores::Instruction<Stored>;
  static constexpr int steps = sizeof(Stored);  ///< words of a vector
  static constexpr int channel_tiles = 4;       ///< of 16 output channels
  using Words = StagedTaps::Words<Stored>;
  /// sums[j][2 u + v]: channel 2 j + u of the thread's half, position 2 t + v, t being the thread's number of four.
  using Sums = float[channel_tiles][4];

  __device__ SubpixelWarp(const Stored* weight, const SubpixelTiles& tiles)
      : tiles_(tiles), place_(tiles.channel_group_of(warp()) * SubpixelTiles::group_places + lane() / 4 % 4) {
#pragma unroll
    for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const Words words = tiles.weights(weight, out_channel_of(place_, half()) + 2 * j + u, 2 * own() + v);
#pragma unroll
          for (int w = 0; w < steps; ++w) weight_[v * steps / 2 + w / 2][j][w % 2 * 2 + u] = words[w];
        }
      }
    }
    first_vector_ = tiles.vector_offset[2 * own()] + lane() / 4 * tiles.pixel_step;
    second_vector_ = tiles.vector_offset[2 * own() + 1] + lane() / 4 * tiles.pixel_step;
    int rest = place_;
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      first_[axis] = rest % tiles.block[axis] - tiles.offset[axis];
      rest /= tiles.block[axis];
    }
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % cuda::warp_size; }
  __device__ static int own() { return lane() % 4; }
  /// Which half of the channels the thread has, and which of its two positions is its own.
  __device__ static int half() { return lane() / 16; }

  /// What the convolution gives for twice 8 positions, the first of whose pixels are `positions`.
  __device__ void convolve(Sums (&sums)[2], const Stored* positions) const {
    Words vectors[2][2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const Stored* const own = positions + b * SubpixelTiles::positions_at_once * tiles_.pixel_step;
      vectors[b][0] = *reinterpret_cast<const Words*>(own + first_vector_);
      vectors[b][1] = *reinterpret_cast<const Words*>(own + second_vector_);
#pragma unroll
      for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[b][j][i] = 0;
      }
    }
#pragma unroll
    for (int s = 0; s < steps; ++s) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const Words& words = vectors[b][2 * s / steps];
        const int w = 2 * s % steps;
#pragma unroll
        for (int j = 0; j < channel_tiles; ++j) Instruction::multiply(sums[b][j], weight_[s][j], words[w], words[w + 1]);
      }
    }
  }

  /// The exponentials of what the convolution gives, times a common factor for each position; and of the thread's own positions, the sums
  /// of these over all channels with the factors' logarithms.
  __device__ void exponentiate(Sums (&sums)[2], PixelSum<Half> (&totals)[2], const Stored* positions) const {
    convolve(sums, positions);
    bool held = true;  // by float, without a factor
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      totals[b] = {0, sum_of_exponentials(sums[b], {0, 0})};
      held &= totals[b].sum > 0x1p-100f && totals[b].sum < 0x1p100f;
    }
    if (__all_sync(0xffffffffu, held)) return;
    convolve(sums, positions);
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

  /// Of the weight's gradient: [i][j][u][2 v + r] is in column 2 i + v of vector lane() / 4, in channel 2 j + u of those of the threads
  /// whose lane / 4 is 2 own() + r.
  using Products = float[2][channel_tiles][2][4];
  /// products += pixels (columns, positions) * gradients (positions, channels), for twice 8 positions.
  __device__ void multiply(Products& products, const Sums (&gradients)[2], const Stored* positions) const {
    const Stored* const from = positions + tiles_.vector_offset[lane() / 4] + 2 * own() * tiles_.pixel_step;
    const int block_step = SubpixelTiles::positions_at_once * tiles_.pixel_step;
    if constexpr (is_half_type<Stored>) {
      using Pair = cuda::Packed<Stored>;
      std::uint32_t left[2][4];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const Words first = *reinterpret_cast<const Words*>(from + b * block_step),
                    second = *reinterpret_cast<const Words*>(from + b * block_step + tiles_.pixel_step);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          left[i][2 * b] = __byte_perm(first[i], second[i], 0x5410);
          left[i][2 * b + 1] = __byte_perm(first[i], second[i], 0x7632);
        }
      }
#pragma unroll
      for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          const std::uint32_t right[2] = {Pair::narrow(gradients[0][j][2 * u], gradients[0][j][2 * u + 1]),
                                          Pair::narrow(gradients[1][j][2 * u], gradients[1][j][2 * u + 1])};
#pragma unroll
          for (int i = 0; i < 2; ++i) Instruction::multiply(products[i][j][u], left[i], right[0], right[1]);
        }
      }
    } else {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        std::uint32_t left[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const auto first = *reinterpret_cast<const uint2*>(from + b * block_step + 2 * i),
                     second = *reinterpret_cast<const uint2*>(from + b * block_step + tiles_.pixel_step + 2 * i);
          left[i][0] = first.x, left[i][1] = first.y, left[i][2] = second.x, left[i][3] = second.y;
        }
#pragma unroll
        for (int j = 0; j < channel_tiles; ++j) {
          const float(&own)[4] = gradients[b][j];
          const auto rounded = tensor_cores::Product<float>::rounded(cuda::Vector<float, 4>{own[0], own[1], own[2], own[3]});
#pragma unroll
          for (int u = 0; u < 2; ++u) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              Instruction::multiply(products[i][j][u], left[i], __float_as_uint(rounded[2 * u]), __float_as_uint(rounded[2 * u + 1]));
            }
          }
        }
      }
    }
  }
  /// Adds the products to those of the whole weight. What no tap has is 0, or NaN.
  __device__ void add(const Products& products, float* sums) const {
    const int vector = lane() / 4, first_place = place_ - lane() / 4 % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int column = 2 * i + v;
        const float factor = tiles_.counts(vector, column) ? 1 : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int other = 2 * own() + r;
          float* const to =
              sums + out_channel_of(first_place + other % 4, other / 4) * SubpixelTiles::columns + vector * SubpixelTiles::width + column;
#pragma unroll
          for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
            for (int u = 0; u < 2; ++u) to[(2 * j + u) * SubpixelTiles::columns] += products[i][j][u][2 * v + r] * factor;
          }
        }
      }
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
  /// The first output channel that a thread with some place and half has.
  __device__ static int out_channel_of(int place, int half) { return place * SubpixelTiles::channels + half * 8; }
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
  int place_;
  std::uint32_t weight_[steps][channel_tiles][4];
  int first_vector_, second_vector_;  ///< of the thread's position, from its warp's pixels on
  int first_[3];                      ///< of the output in block 0
};

}  // namespace frit::ops
