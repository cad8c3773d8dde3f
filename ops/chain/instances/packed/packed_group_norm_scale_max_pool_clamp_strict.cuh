#pragma once

#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp_backward.cuh"
#include "frit/ops/chain/instances/packed/packed_group_norm_scale_max_pool_clamp.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/tiles/planar_taps.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/cuda/sum_partials.cuh"

// The passes in strict float32: a thread computes 4 channels of a patch of 4 x 4 positions, which is whole windows.

namespace frit::ops {

/// Tiles whose pixels lie as planes. Of a warp 8 threads have neighbouring channels, and 4 neighbouring patches.
struct PooledPatches : WindowTiles<PlanarTaps> {
  static constexpr int channel_lanes = Kernels::out_channels / patch_channels, lanes = cuda::warp_size / channel_lanes;
  static constexpr int stretch = lanes * patch;  ///< columns of a warp's positions

  /// `rows` is a multiple of a patch's.
  PooledPatches(int rows, int tile_columns, const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a)
      : WindowTiles(laid_out(rows, tile_columns, image, weight, a), rows, tile_columns, image, weight, a) {}

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  __device__ static int own() { return static_cast<int>(threadIdx.x) % lanes; }
  /// The thread's first.
  __device__ int channel() const {
    return first_channel_of(warp()) + static_cast<int>(threadIdx.x) % cuda::warp_size / lanes * patch_channels;
  }

  /// Brings the weight times sign(output channel) to shared memory.
  template <class Sign>
  __device__ void stage_channels(float* to, const float* weight, const Sign& sign) const {
    stage_weight(to, channels, [&](int out_channel, int c, int tap) {
      return weight[out_channel * used_columns + (plane_taps - 1 - tap) * tap_vectors * width + c] *
             sign(out_channel);  // the taps of im2col are in reverse
    });
  }
  /// Calls body(number, tile) for each tile that is the block's, with its pixels in shared memory. For all threads.
  template <class Body>
  __device__ void for_each_tile(float* staged, const float* from, const Body& body) const {
    for (int number = static_cast<int>(blockIdx.x); number < count; number += static_cast<int>(gridDim.x)) {
      const OutputTile tile(*this, number);
      __syncthreads();  // the tile before was used
      stage_planes<threads>(staged, from, tile.sample, 0, tile.row, tile.column);
      cuda::wait_for_copies();
      __syncthreads();
      body(number, tile);
    }
  }

 private:
  static PlanarTaps laid_out(int rows, int columns, const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a) {
    PlanarTaps taps{StagedTaps(image, weight.shape[1], a.im2col)};
    taps.lay_out_planes(1, rows, columns);
    return taps;
  }
};

/// Whether there are kernels for a call, in strict float32 with such patches, for which a block has room; `image_input` is the number
/// of that one, after which the weight comes.
template <class Patches>
bool has_kernels(const KernelContext& call, std::size_t image_input) {
  const Tensor &image = call.inputs[image_input], &weight = call.inputs[image_input + 1];
  const TensorType weight_type{weight.dtype(), weight.shape()};
  const auto& attributes = call.as<PackedGroupNormPoolAttributes>();
  if (image.elements() == 0 || !has_packed_group_norm_pool_kernels({image.dtype(), image.shape()}, weight_type, attributes)) return false;
  return on_tensor_cores(weight.dtype()) ||
         Patches(image, weight_type, attributes).shared_bytes() <= cuda::properties(image.device().index).shared_per_block;
}

/// Calls body(tiles) with those for a call: for tensor cores, or such patches.
template <class Patches, class Body>
void with_tiles(const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a, const Body& body) {
  if (!on_tensor_cores(weight.dtype)) return body(Patches(image, weight, a));
  constexpr int fewer = 3, most = 5;
  static_assert(TapVectors<most>::most * StagedTaps::width == PackedGroupNormPoolKernels::columns);
  dispatch_loads<fewer, most>(weight.shape[1], [&]<int loads>() { body(PooledTaps<loads>(image, weight, a)); });
}

/// Tiles of the forward pass.
struct ForwardPatches : PooledPatches {
  static constexpr int rows = 16, resident_blocks = 3;  ///< to a multiprocessor, as registers allow

  ForwardPatches(const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a)
      : PooledPatches(rows, columns_for(a.im2col.output_size[1]), image, weight, a) {}

  std::size_t shared_bytes() const { return staged_bytes + weight_bytes(channels); }

 private:
  static int columns_for(std::int64_t positions) {
    return positions > 2 * stretch ? 4 * stretch : positions > stretch ? 2 * stretch : stretch;
  }
};

/// A block some tiles, of which each warp has 32 channels of some patches; windows of `side` x `side` positions. Reads the image and writes
/// of each window one element, and the tiles' sums. Deterministic.
template <int side, bool numbered>
__global__ void __launch_bounds__(ForwardPatches::threads, ForwardPatches::resident_blocks)
    pool_patches(WindowElements<float> results, PivotSums* sums /* (tiles, shares, C) */, const float* image, const float* weight,
                 Parameter<float> bias, bool biased, GroupParameters<float> parameters, const __grid_constant__ ForwardPatches tiles) {
  constexpr int patch = PlanarTaps::patch, thread_channels = PlanarTaps::patch_channels;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const factors = reinterpret_cast<float*>(memory);
  auto* const staged = reinterpret_cast<float*>(memory + tiles.weight_bytes(tiles.channels));
  const int channel = tiles.channel(), own = tiles.own(), share = tiles.share_of(tiles.warp());
  // The pass computes sign * x, so that maxima are what is looked for.
  tiles.stage_channels(factors, weight, [&](int out_channel) { return parameters.sign(out_channel); });
  float signs[thread_channels], added[thread_channels];
  bool live[thread_channels];
#pragma unroll
  for (int i = 0; i < thread_channels; ++i) {
    signs[i] = parameters.sign(channel + i);
    live[i] = parameters.weight[channel + i] != 0 && parameters.scale[channel + i] != 0;
    added[i] = biased ? bias[channel + i] * signs[i] : 0;
  }
  tiles.for_each_tile(staged, image, [&](int number, const OutputTile& tile) {
    float pivots[thread_channels], start[thread_channels], sum[thread_channels] = {}, squares[thread_channels] = {};
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) pivots[i] = 0, start[i] = added[i];
    int count = 0;
    bool first = true;
    const int stretches = tiles.size[2] / ForwardPatches::stretch;
#pragma unroll 1
    for (int item = share; item < ForwardPatches::rows / patch * stretches; item += tiles.shares()) {
      const int row = item / stretches * patch, begin = item % stretches * ForwardPatches::stretch, column = begin + own * patch;
      if (tile.row + row >= tiles.output_size[1] || tile.column + begin >= tiles.output_size[2]) continue;
      PlanarTaps::Sums x;
      tiles.convolve(x, start, staged + row * tiles.row_step + column, factors + channel, tiles.channels);
      if (first) {
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) {
          pivots[i] = __shfl_sync(~0u, x[i][0][0], static_cast<int>(threadIdx.x) & 28);
          start[i] -= pivots[i];
#pragma unroll
          for (int position = 0; position < patch * patch; ++position) x[i][position / patch][position % patch] -= pivots[i];
        }
        first = false;
      }
      const int rows = min(tiles.output_size[1] - tile.row - row, patch),
                columns = min(max(tiles.output_size[2] - tile.column - column, 0), patch);
      count += rows * columns;
      const auto add = [&](auto exists) {
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) {
#pragma unroll
          for (int position = 0; position < patch * patch; ++position) {
            const float difference = exists(position / patch, position % patch) ? x[i][position / patch][position % patch] : 0;
            sum[i] += difference;
            squares[i] = fmaf(difference, difference, squares[i]);
          }
        }
      };
      if (rows == patch && tile.column + begin + ForwardPatches::stretch <= tiles.output_size[2]) {
        add([](int, int) { return true; });
      } else {
        add([&](int y, int c) { return y < rows && c < columns; });
      }
#pragma unroll
      for (int wy = 0; wy < patch; wy += side) {
#pragma unroll
        for (int wx = 0; wx < patch; wx += side) {
          const int window_row = (tile.row + row + wy) / side, window = (tile.column + column + wx) / side;
          cuda::Vector<float, thread_channels> elements;
          cuda::Vector<std::uint8_t, thread_channels> numbers;
#pragma unroll
          for (int i = 0; i < thread_channels; ++i) {
            float best = -INFINITY;
            int best_number = 0;
#pragma unroll
            for (int k = 0; k < side * side; ++k) {
              const float other = x[i][wy + k / side][wx + k % side];
              if constexpr (numbered) {
                const bool wins = other > best && (live[i] || k == 0);  // where all are equal to it the first
                best = wins ? other : best;
                best_number = wins ? k : best_number;
              } else {
                best = fmaxf(best, other);
              }
            }
            elements[i] = (best + pivots[i]) * signs[i];
            numbers[i] = static_cast<std::uint8_t>(best_number);
          }
          if (window_row >= tiles.windows[0] || window >= tiles.windows[1]) continue;
          const std::int64_t place = tiles.window_place(tile.sample, window_row, window) + channel;
          cuda::store_vector(results.elements + place, elements);
          if constexpr (numbered) cuda::store_vector(results.numbers + place, numbers);
        }
      }
    }
#pragma unroll
    for (int mask = 1; mask < ForwardPatches::lanes; mask *= 2) {
      count += __shfl_xor_sync(~0u, count, mask);
#pragma unroll
      for (int i = 0; i < thread_channels; ++i) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], mask);
        squares[i] += __shfl_xor_sync(~0u, squares[i], mask);
      }
    }
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) {
      if (own == i) sums[tiles.entry(number, share, channel) + i] = {pivots[i] * signs[i], sum[i] * signs[i], squares[i], count};
    }
  });
}

/// Tiles of the backward pass, in which a warp has one stretch of patches.
struct BackwardPatches : PooledPatches {
  static constexpr int rows = patch, resident_blocks = 2;  ///< to a multiprocessor, as registers allow
  /// Rows of taps that a thread multiplies with, of an image of 4 channels and of one of 8.
  static constexpr int few = side, some = 2 * side;

  int gradient_step;  ///< from channel to channel of the gradient, in elements

  BackwardPatches(const Tensor& image, const TensorType& weight, const PackedGroupNormPoolAttributes& a)
      : PooledPatches(rows, stretch * warps * Kernels::out_channels / static_cast<int>(weight.shape[0]), image, weight, a),
        gradient_step((rows * size[2] / patch | 1) * patch) {}

  int tap_rows_to_thread() const { return tap_rows() / lanes; }
  /// Of a block's sums.
  int weight_elements() const { return channels * tap_rows() * side; }
  FRIT_HOST_DEVICE int gradient_elements() const { return channels * gradient_step; }
  std::size_t shared_bytes() const {
    return std::max(staged_bytes + weight_bytes(channels) + static_cast<std::size_t>(gradient_elements()) * sizeof(float),
                    static_cast<std::size_t>(weight_elements()) * sizeof(float));
  }
};

/// Of an item of a block's sums, whose columns are rows of taps, in the gradient of the weight after im2col.
struct Im2colTapRowPlace {
  int columns, channels;

  FRIT_HOST_DEVICE std::int64_t operator()(int item) const {
    const PlanarTaps::Item own(item, columns);
    return (own.out_channel * PlanarTaps::plane_taps + PlanarTaps::plane_taps - 1 - own.tap) * channels + own.plane;
  }
};

/// A block some tiles, of which each warp has 32 channels of some patches; windows of `window` x `window` positions. Reads the image and
/// what the windows get, and writes, for each block, its part of the weight's gradient; where wanted, `differences` gets the tiles' sums of
/// x - reference. Deterministic.
template <int window, int tap_rows>
__global__ void __launch_bounds__(BackwardPatches::threads, BackwardPatches::resident_blocks)
    gather_patches_gradient(float* partials /* (blocks, weight_elements) */, float* differences /* (tiles, shares, C), or null */,
                            const float* image, const float* weight, Parameter<float> bias, bool biased, GradientRules<float> rules,
                            ArgmaxGradients<float, std::uint8_t> at_argmax, const __grid_constant__ BackwardPatches tiles) {
  constexpr int patch = PlanarTaps::patch, thread_channels = PlanarTaps::patch_channels, lanes = BackwardPatches::lanes,
                side = PlanarTaps::side;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const factors = reinterpret_cast<float*>(memory);
  float* const gradient = factors + tiles.weight_bytes(tiles.channels) / sizeof(float);  // (K, positions)
  float* const staged = gradient + tiles.gradient_elements();
  const int channel = tiles.channel(), own = tiles.own(), share = tiles.share_of(tiles.warp());
  tiles.stage_channels(factors, weight, [](int) { return 1.0f; });
  float added[thread_channels];
  int offsets[tap_rows];
#pragma unroll
  for (int i = 0; i < thread_channels; ++i) added[i] = biased ? bias[channel + i] : 0;
#pragma unroll
  for (int k = 0; k < tap_rows; ++k) offsets[k] = tiles.tap_row_offset(k * lanes + own);
  PlanarTaps::Products<tap_rows> products = {};
  tiles.for_each_tile(staged, image, [&](int number, const OutputTile& tile) {
    const RuleVector<float, thread_channels> rule(rules, static_cast<std::int64_t>(tile.sample) * tiles.channels + channel);
    const int column = share * BackwardPatches::stretch + own * patch;
    const int rows = min(tiles.output_size[1] - tile.row, patch), columns = min(tiles.output_size[2] - tile.column - column, patch);
    float sums[thread_channels] = {};
    {
      PlanarTaps::Sums x;
      tiles.convolve(x, added, staged + column, factors + channel, tiles.channels);
#pragma unroll
      for (int wy = 0; wy < patch; wy += window) {
#pragma unroll
        for (int wx = 0; wx < patch; wx += window) {
          const int window_row = (tile.row + wy) / window, window_column = (tile.column + column + wx) / window;
          cuda::Vector<float, thread_channels> more;
          cuda::Vector<std::uint8_t, thread_channels> numbers;
#pragma unroll
          for (int i = 0; i < thread_channels; ++i) numbers[i] = UINT8_MAX;
          if (window_row < tiles.windows[0] && window_column < tiles.windows[1]) {
            const std::int64_t place = tiles.window_place(tile.sample, window_row, window_column) + channel;
            more = *reinterpret_cast<const cuda::Vector<float, thread_channels>*>(at_argmax.more + place);
            numbers = *reinterpret_cast<const cuda::Vector<std::uint8_t, thread_channels>*>(at_argmax.argmax + place);
          }
#pragma unroll
          for (int i = 0; i < thread_channels; ++i) {
#pragma unroll
            for (int k = 0; k < window * window; ++k) {
              float& element = x[i][wy + k / window][wx + k % window];
              const bool inside = wy + k / window < rows && wx + k % window < columns;
              const float difference = rule.difference(i, element), spread = rule.spread(i, difference);
              sums[i] += inside ? difference : 0;
              element = inside ? numbers[i] == k ? spread + more[i] : spread : 0;
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < thread_channels; ++i) {
#pragma unroll
        for (int r = 0; r < patch; ++r) {
          const cuda::Vector<float, patch> line{x[i][r][0], x[i][r][1], x[i][r][2], x[i][r][3]};
          *reinterpret_cast<cuda::Vector<float, patch>*>(gradient + (channel + i) * tiles.gradient_step + r * tiles.size[2] + column) =
              line;
        }
      }
    }
    if (differences != nullptr) {
#pragma unroll
      for (int i = 0; i < thread_channels; ++i) {
#pragma unroll
        for (int mask = 1; mask < lanes; mask *= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], mask);
        if (own == i) differences[tiles.entry(number, share, channel) + i] = sums[i];
      }
    }
    __syncthreads();
    const int count = PlanarTaps::patches(min(tiles.size[2], tiles.output_size[2] - tile.column));
#pragma unroll 1
    for (int line = share; line < rows; line += tiles.shares()) {
      PlanarTaps::multiply(products, gradient + channel * tiles.gradient_step + line * tiles.size[2], tiles.gradient_step,
                           staged + line * tiles.row_step, offsets, count);
    }
  });
  // The warps with other positions add their products, one after the other.
  constexpr int columns = lanes * tap_rows * side;
  const int count = tiles.channels * columns;
  put_partials(partials + static_cast<std::int64_t>(blockIdx.x) * count, factors, count, tiles.shares(), [&](int turn, float* sums) {
    if (turn == share) PlanarTaps::add(products, sums + channel * columns, columns, own, lanes);
  });
}

}  // namespace frit::ops
