#pragma once

#include <numeric>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/tiles/staged_taps.cuh"

namespace frit::ops {

/// How the columns of a weight are dealt out for products with taps. Of 4 neighbouring threads each loads `loads` vectors of 4 columns:
/// neighbouring ones if dealt out `by_number`, else chosen so that what the threads load at the same time lies in different banks.
template <int loads>
struct TapVectors {
  static constexpr int most = 4 * loads;

  int number[most];    ///< of vector v of thread t, at t * loads + v; -1: of none, whose weights are 0
  int offset[most];    ///< likewise, from a position's first pixel on, in elements
  int in_order[most];  ///< the offsets of vectors 0, 1, ...

  /// For which StagedTaps are to lay out rows and depths.
  static int row_bank(const StagedTaps& taps) { return 32 * taps.tap_vectors; }
  static int depth_bank(const StagedTaps& taps) { return row_bank(taps) * taps.taps[1] % 128; }

  explicit TapVectors(const StagedTaps& taps, bool by_number = false) {
    const int vectors = taps.used_columns / StagedTaps::width;
    std::fill_n(number, most, -1);
    if (by_number) {
      std::iota(number, number + vectors, 0);
    } else {
      spread(taps, vectors);
    }
    for (int i = 0; i < most; ++i) {
      offset[i] = taps.offset_of(std::max(0, number[i] < 0 ? number[i % loads] : number[i]));
      in_order[i] = taps.offset_of(i < vectors ? i : 0);
    }
  }

 private:
  /// Rows of taps side by side, as many as have banks of their own; then what is left, in order.
  void spread(const StagedTaps& taps, int vectors) {
    const bool even = 4 % taps.tap_vectors == 0;
    const int row = taps.taps[2] * taps.tap_vectors, row_group = even ? 4 / taps.tap_vectors : 1,
              rows = even ? vectors / row / row_group * row_group : 0;
    int load = 0;
    for (int first = 0; first < rows; first += row_group) {
      for (int tap = 0; tap < taps.taps[2]; ++tap, ++load) {
        for (int t = 0; t < 4; ++t) {
          set(t, load, (first + t / taps.tap_vectors) * row + tap * taps.tap_vectors + t % taps.tap_vectors);
        }
      }
    }
    for (int vector = rows * row, t = 0; vector < vectors; ++vector, t = (t + 1) % 4) {
      set(t, load, vector);
      if (t == 3) ++load;
    }
  }
  void set(int thread, int load, int vector) {
    FRIT_CHECK(load < loads);
    number[thread * loads + load] = vector;
  }
};

/// Calls body.operator()<loads>() for the fewer loads if they do for a weight of so many columns, else for the most.
template <int fewer, int most, class Body>
void dispatch_loads(std::int64_t columns, const Body& body) {
  FRIT_CHECK(columns <= TapVectors<most>::most * StagedTaps::width);
  if (columns <= TapVectors<fewer>::most * StagedTaps::width) {
    body.template operator()<fewer>();
  } else {
    body.template operator()<most>();
  }
}

/// Which of a warp's parts of the output channels a thread has, given its lane / 4.
struct ChannelsInOrder {
  __device__ static int place(int quarter) { return quarter; }
};

/// What a warp computes of `warp_channels` output channels, a multiple of 16, and of blocks of 8 neighbouring positions, on tensor cores.
/// The weight is in registers. `known_pixel` is StagedTaps::pixel_step where that is known when this is compiled, else 0.
template <class Stored, int loads, int warp_channels, int known_pixel = 0, class Order = ChannelsInOrder>
class TapWarp {
 public:
  using Instruction = tensor_cores::Instruction<Stored>;
  static constexpr int positions = 8;                                            ///< of a block
  static constexpr int channel_tiles = warp_channels / 16, thread_channels = 2 * channel_tiles;  ///< a thread's channels are neighbours
  static constexpr int vector_words = sizeof(Stored);                            ///< words of a vector
  using Words = StagedTaps::Words<Stored>;
  /// sums[j][2 u + v]: the thread's channel 2 j + u, position 2 t + v, t being the thread's number of four.
  using Sums = float[channel_tiles][4];

  /// weights(output channel, i, vector): a vector of the thread's channel i as words; zeros for vector -1.
  template <class Weights>
  __device__ TapWarp(int first_channel, const TapVectors<loads>& vectors, const StagedTaps& taps, const Weights& weights)
      : taps_(taps), first_channel_(first_channel) {
#pragma unroll
    for (int v = 0; v < loads; ++v) {
      const int place = own() * loads + v;
      offset_[v] = vectors.offset[place] + lane() / 4 * pixel_step();
#pragma unroll
      for (int i = 0; i < thread_channels; ++i) {
        const Words words = weights(thread_channel(lane() / 4) + i, i, vectors.number[place]);
#pragma unroll
        for (int w = 0; w < vector_words; ++w) weight_[v * vector_words / 2 + w / 2][i / 2][w % 2 * 2 + i % 2] = words[w];
      }
      if (v == loads - 1) last_used_ = vectors.number[place] >= 0;
      const int pair = 8 * v + lane() / 4;
      pair_offset_[v] = vectors.in_order[pair / 2] + pair % 2 * 2;
    }
  }

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % cuda::warp_size; }
  __device__ static int own() { return lane() % 4; }
  /// The first of the output channels of a thread with some lane / 4.
  __device__ int thread_channel(int quarter) const { return first_channel_ + Order::place(quarter) * thread_channels; }

  /// sums = start + weight * taps, for blocks of positions next to each other, the first of whose pixels are `first`.
  template <int blocks>
  __device__ void convolve(Sums (&sums)[blocks], const float (&start)[thread_channels], const Stored* first) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int i = 0; i < thread_channels; ++i) sums[b][i / 2][i % 2 * 2] = sums[b][i / 2][i % 2 * 2 + 1] = start[i];
    }
#pragma unroll
    for (int v = 0; v < loads; ++v) {
      Words words[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        words[b] = *reinterpret_cast<const Words*>(first + b * positions * pixel_step() + offset_[v]);
        // Of a tap beyond the last nothing may come, not even NaN.
        if (v < loads - 1) continue;
#pragma unroll
        for (int w = 0; w < vector_words; ++w) words[b][w] = last_used_ ? words[b][w] : 0;
      }
#pragma unroll
      for (int w = 0; w < vector_words; w += 2) {
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
#pragma unroll
          for (int j = 0; j < channel_tiles; ++j) {
            Instruction::multiply(sums[b][j], weight_[(v * vector_words + w) / 2][j], words[b][w], words[b][w + 1]);
          }
        }
      }
    }
  }

  /// Of the weight's gradient: pairs of columns go from 0 on; [i][j][u][2 v + r] is in column v of pair 8 i + lane / 4, in channel 2 j + u
  /// of those of the threads whose lane / 4 is 2 own() + r.
  using Products = float[loads][channel_tiles][2][4];
  /// products += pixels (columns, positions) * gradients (positions, channels), for two blocks of positions.
  __device__ void multiply(Products& products, const Sums (&gradients)[2], const Stored* first) const {
    const Stored* const from = first + 2 * own() * pixel_step();
    const int block_step = positions * pixel_step();
    if constexpr (is_half_type<Stored>) {
      using Pair = cuda::Packed<Stored>;
      std::uint32_t right[channel_tiles][2][2];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) {
          right[i / 2][i % 2][b] = Pair::narrow(gradients[b][i / 2][i % 2 * 2], gradients[b][i / 2][i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        std::uint32_t left[4];
        const Stored* const pair = from + pair_offset_[i];
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          const auto one = *reinterpret_cast<const std::uint32_t*>(pair + b * block_step),
                     other = *reinterpret_cast<const std::uint32_t*>(pair + b * block_step + pixel_step());
          left[2 * b] = __byte_perm(one, other, 0x5410);
          left[2 * b + 1] = __byte_perm(one, other, 0x7632);
        }
#pragma unroll
        for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
          for (int u = 0; u < 2; ++u) Instruction::multiply(products[i][j][u], left, right[j][u][0], right[j][u][1]);
        }
      }
    } else {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        cuda::Vector<float, 4> rounded[channel_tiles];
#pragma unroll
        for (int j = 0; j < channel_tiles; ++j) {
          const float(&own)[4] = gradients[b][j];
          rounded[j] = tensor_cores::Product<float>::rounded(cuda::Vector<float, 4>{own[0], own[1], own[2], own[3]});
        }
#pragma unroll
        for (int i = 0; i < loads; ++i) {
          const Stored* const pair = from + pair_offset_[i] + b * block_step;
          const auto one = *reinterpret_cast<const uint2*>(pair), other = *reinterpret_cast<const uint2*>(pair + pixel_step());
          const std::uint32_t left[4] = {one.x, one.y, other.x, other.y};
#pragma unroll
          for (int j = 0; j < channel_tiles; ++j) {
#pragma unroll
            for (int u = 0; u < 2; ++u) {
              Instruction::multiply(products[i][j][u], left, __float_as_uint(rounded[j][2 * u]), __float_as_uint(rounded[j][2 * u + 1]));
            }
          }
        }
      }
    }
  }

  static constexpr int columns = TapVectors<loads>::most * StagedTaps::width;  ///< of a channel of `sums`
  /// Adds the products to those of the whole weight. What no tap has is 0, or NaN.
  __device__ void add(const Products& products, float* sums) const {
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int pair = 8 * i + lane() / 4;
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int column = pair * 2 + v;
        const float factor = taps_.counts(column / StagedTaps::width, column % StagedTaps::width) ? 1 : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float* const to = sums + thread_channel(2 * own() + r) * columns + column;
#pragma unroll
          for (int k = 0; k < thread_channels; ++k) to[k * columns] += products[i][k / 2][k % 2][2 * v + r] * factor;
        }
      }
    }
  }

 private:
  __device__ int pixel_step() const { return known_pixel > 0 ? known_pixel : taps_.pixel_step; }

  const StagedTaps& taps_;
  int first_channel_;
  bool last_used_;  ///< of the last loads, the thread's
  std::uint32_t weight_[loads * vector_words / 2][channel_tiles][4];
  int offset_[loads], pair_offset_[loads];  ///< of what the thread reads, from a block's first pixel on
};

}  // namespace frit::ops
