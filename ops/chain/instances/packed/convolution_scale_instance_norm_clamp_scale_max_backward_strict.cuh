#pragma once

#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max_backward.cuh"
#include "frit/ops/convolution/tiles/output_tiles.cuh"
#include "frit/ops/convolution/tiles/planar_taps.cuh"
#include "frit/ops/cuda/sum_partials.cuh"

// The weight's gradient in strict float32: the gradient of a tile of what the convolution gave is made in shared memory, and multiplied
// with the tile's taps.

namespace frit::ops {

/// How the positions of all samples are cut into tiles.
struct GradientTiles : PlanarTaps {
  static constexpr int out_channels = static_cast<int>(ConvolutionInstanceNormMaxKernels::out_channels);
  static constexpr int threads = 128, warps = threads / cuda::warp_size, resident_blocks = 4;  ///< as registers allow
  static constexpr int channel_lanes = out_channels / patch_channels,
                       lanes = cuda::warp_size / channel_lanes;  ///< of a warp, for output channels and for rows of taps
  /// Rows of taps that a thread may have: there are kernels for these numbers.
  static constexpr int few = 2, some = 4, most = 5;

  int size[3];                                         ///< positions along each axis
  int gradient_step;                                   ///< from channel to channel of the gradient, in elements
  cuda::Divisor column_tiles, row_tiles, depth_tiles;  ///< along each axis
  cuda::Divisor quads, tile_rows;                      ///< of a line, and lines of a depth
  int count;                                           ///< of tiles

  explicit GradientTiles(const StagedTaps& taps)
      : PlanarTaps(taps),
        size{std::min(taps.output_size[0], 2), std::min(taps.output_size[1], 8), std::min(patches(taps.output_size[2]), 8) * patch},
        column_tiles(parts(2)),
        row_tiles(parts(1)),
        depth_tiles(parts(0)),
        quads(size[2] / patch),
        tile_rows(size[1]),
        count(static_cast<int>(taps.planes.samples) * column_tiles.value<int>() * row_tiles.value<int>() * depth_tiles.value<int>()) {
    lay_out_planes(size[0], size[1], size[2]);
    gradient_step = (tile_positions() / patch | 1) * patch;
  }

  int tap_rows_to_thread() const {
    const int wanted = (tap_rows() + lanes - 1) / lanes;
    FRIT_CHECK(wanted <= most);
    return wanted <= few ? few : wanted <= some ? some : most;
  }
  static constexpr int columns(int tap_rows_of_thread) { return lanes * tap_rows_of_thread * side; }  ///< of a channel of a block's sums
  FRIT_HOST_DEVICE int tile_positions() const { return size[0] * size[1] * size[2]; }
  FRIT_HOST_DEVICE int gradient_elements() const { return out_channels * gradient_step; }
  std::size_t shared_bytes() const { return static_cast<std::size_t>(gradient_elements()) * sizeof(float) + staged_bytes; }

 private:
  int parts(int axis) const { return std::max(1, (output_size[axis] + size[axis] - 1) / size[axis]); }
};

/// Of an item of a block's sums, whose columns are rows of taps, in the weight's gradient (K, C, kernel...); -1 where that has none.
struct TapRowPlace {
  int columns, channels, depths;

  FRIT_HOST_DEVICE std::int64_t operator()(int item) const {
    const PlanarTaps::Item own(item, columns);
    const int z = own.plane / channels, c = own.plane % channels;
    return z < depths ? ((own.out_channel * channels + c) * depths + z) * PlanarTaps::plane_taps + own.tap : -1;
  }
};

/// A block some tiles, of whose lines each warp has some. Reads the image, what the convolution gave and what the maxima get, and writes
/// the block's part of the weight's gradient. Deterministic.
template <int tap_rows>
__global__ void __launch_bounds__(GradientTiles::threads, GradientTiles::resident_blocks)
    multiply_gradient(float* partials /* (blocks, K, columns) */, const float* image, GradientSource<float> given,
                      const __grid_constant__ GradientTiles tiles) {
  constexpr int out_channels = GradientTiles::out_channels, thread_channels = PlanarTaps::patch_channels, patch = PlanarTaps::patch,
                lanes = GradientTiles::lanes;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const gradient = reinterpret_cast<float*>(memory);  // (K, positions)
  float* const staged = gradient + tiles.gradient_elements();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / cuda::warp_size, lane = thread % cuda::warp_size;
  const int pixels = tiles.output_size[0] * tiles.output_size[1] * tiles.output_size[2];
  const int first_channel = lane / lanes * thread_channels;
  int offsets[tap_rows];
#pragma unroll
  for (int k = 0; k < tap_rows; ++k) offsets[k] = tiles.tap_row_offset(k * lanes + lane % lanes);
  PlanarTaps::Products<tap_rows> products = {};
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    const GradientSource<float> own = given.from(tile.sample, pixels);
    __syncthreads();  // the tile before was used
    tiles.stage_planes<GradientTiles::threads>(staged, image, tile.sample, tile.depth, tile.row, tile.column);
    {
      // A thread has 4 channels of 4 neighbouring positions at a time.
      const int channel = thread % GradientTiles::channel_lanes * thread_channels;
      const RuleVector<float, thread_channels> rule(given.rules, static_cast<std::int64_t>(tile.sample) * out_channels + channel);
#pragma unroll 2
      for (int quad = thread / GradientTiles::channel_lanes; quad < tiles.tile_positions() / patch;
           quad += GradientTiles::threads / GradientTiles::channel_lanes) {
        const std::uint32_t line = tiles.quads.quotient(static_cast<std::uint32_t>(quad)), depth = tiles.tile_rows.quotient(line);
        const int x = tile.column + static_cast<int>(tiles.quads.remainder(static_cast<std::uint32_t>(quad), line)) * patch,
                  y = tile.row + static_cast<int>(tiles.tile_rows.remainder(line, depth)), z = tile.depth + static_cast<int>(depth);
        const int columns = z < tiles.output_size[0] && y < tiles.output_size[1] ? tiles.output_size[2] - x : 0;
        const int place = (z * tiles.output_size[1] + y) * tiles.output_size[2] + x;
        cuda::Vector<float, thread_channels> convolved[patch];
        float more[patch];
        int index[patch];
#pragma unroll
        for (int c = 0; c < patch; ++c) {
          index[c] = -1;
          if (c >= columns) continue;
          convolved[c] =
              *reinterpret_cast<const cuda::Vector<float, thread_channels>*>(own.convolved + (place + c) * out_channels + channel);
          more[c] = own.more[place + c];
          index[c] = own.argmax[place + c];
        }
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) {
          cuda::Vector<float, patch> elements;
#pragma unroll
          for (int c = 0; c < patch; ++c) {
            const float spread = rule.spread(i, rule.difference(i, convolved[c][i]));
            elements[c] = index[c] < 0 ? 0 : index[c] == channel + i ? spread + more[c] : spread;
          }
          *reinterpret_cast<cuda::Vector<float, patch>*>(gradient + (channel + i) * tiles.gradient_step + quad * patch) = elements;
        }
      }
    }
    cuda::wait_for_copies();
    __syncthreads();
#pragma unroll 1
    for (int line = warp; line < tiles.size[0] * tiles.size[1]; line += GradientTiles::warps) {
      const std::uint32_t depth = tiles.tile_rows.quotient(static_cast<std::uint32_t>(line));
      const int y = static_cast<int>(tiles.tile_rows.remainder(static_cast<std::uint32_t>(line), depth)), z = static_cast<int>(depth);
      if (tile.depth + z >= tiles.output_size[0] || tile.row + y >= tiles.output_size[1]) continue;
      const int count = PlanarTaps::patches(min(tiles.size[2], tiles.output_size[2] - tile.column));
      PlanarTaps::multiply(products, gradient + first_channel * tiles.gradient_step + line * tiles.size[2], tiles.gradient_step,
                           staged + z * tiles.depth_step + y * tiles.row_step, offsets, count);
    }
  }
  // The warps add their products, one after the other.
  constexpr int columns = GradientTiles::columns(tap_rows), count = out_channels * columns;
  put_partials(partials + static_cast<std::int64_t>(blockIdx.x) * count, gradient, count, GradientTiles::warps, [&](int turn, float* sums) {
    if (turn == warp) PlanarTaps::add(products, sums + first_channel * columns, columns, lane % lanes, lanes);
  });
}

}  // namespace frit::ops
