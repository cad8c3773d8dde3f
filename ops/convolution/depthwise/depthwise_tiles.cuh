#pragma once

#include "frit/ops/convolution/depthwise/depthwise_rows.cuh"
#include "frit/ops/cuda/async_copy.cuh"

// Depthwise convolutions with a stride of 1 in two dimensions, from tiles of the source in shared memory.

namespace frit::ops {

/// How a convolution is shared out: a block has 32 channels of a tile, `rows` rows of `runs` runs.
struct DepthwiseTilePlan {
  static constexpr int most_threads = 512, channels_at_once = 32, width = 2, lanes = channels_at_once / width;
  static constexpr int most_steps = DepthwisePlan::most_steps;

  int channels, copied_bytes;            ///< 4, 8 or 16: vectors of memory that are vectors of channels
  int source[2], result[2], padding[2];  ///< rows and columns
  int taps[2];
  int runs, rows, pitch;  ///< of a tile; pixels of a staged row, an odd number: the threads of two rows meet no bank twice
  cuda::Divisor tiles_down, tiles_across, pitches, kernels;
  bool mirrored;  ///< the taps, as of a data gradient
  int epilogue_steps;
  DepthwiseStep epilogue[most_steps];

  FRIT_HOST_DEVICE int pairs() const { return (rows + 1) / 2; }
  FRIT_HOST_DEVICE int pixels() const { return (2 * pairs() + taps[0] - 1) * pitch; }
  FRIT_HOST_DEVICE int weights() const { return taps[0] * taps[1] * channels_at_once; }
};

/// As floats: (taps, channels). Several are under way at once.
template <int taps, class Stored>
__device__ void stage_weights(float* staged, const Stored* weight /* (C, taps) */, const DepthwiseTilePlan& plan, int first_channel,
                              int thread, int threads) {
  constexpr int at_once = 8;
  const int kernel = plan.taps[0] * taps, count = min(plan.channels - first_channel, DepthwiseTilePlan::channels_at_once) * kernel;
  const Stored* const own = weight + std::int64_t{first_channel} * kernel;
  for (int first = thread; first < plan.weights(); first += at_once * threads) {
    float elements[at_once] = {};
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (first + k * threads < count) elements[k] = convert<float>(own[first + k * threads]);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const auto i = static_cast<std::uint32_t>(first + k * threads), channel = plan.kernels.quotient(i);
      const auto tap = static_cast<int>(plan.kernels.remainder(i, channel));
      if (static_cast<int>(i) >= plan.weights()) break;
      staged[(plan.mirrored ? kernel - 1 - tap : tap) * DepthwiseTilePlan::channels_at_once + static_cast<int>(channel)] = elements[k];
    }
  }
}

/// The source around the tile that begins at (y, x), and zeros beyond the source: begins to copy, so many bytes at a time.
template <int bytes, class Stored>
__device__ void stage_tile(Stored* pixels, const Stored* source, const DepthwiseTilePlan& plan, std::uint32_t sample, int y, int x,
                           int first_channel, int thread, int threads) {
  constexpr int channels_at_once = DepthwiseTilePlan::channels_at_once;
  constexpr int chunk = bytes / static_cast<int>(sizeof(Stored)), chunks = channels_at_once / chunk;
  const int channel = first_channel + thread % chunks * chunk;
  const Stored* const from = source + std::int64_t{sample} * plan.source[0] * plan.source[1] * plan.channels + channel;
  const std::uint32_t to = cuda::shared_address(pixels) + thread % chunks * bytes;
  for (int pixel = thread / chunks; pixel < plan.pixels(); pixel += threads / chunks) {
    const std::uint32_t row = plan.pitches.quotient(static_cast<std::uint32_t>(pixel));
    const int in_y = y - plan.padding[0] + static_cast<int>(row);
    const int in_x = x - plan.padding[1] + static_cast<int>(plan.pitches.remainder(static_cast<std::uint32_t>(pixel), row));
    const auto lies = [](int place, int size) { return static_cast<unsigned>(place) < static_cast<unsigned>(size); };
    const bool inside = lies(in_y, plan.source[0]) && lies(in_x, plan.source[1]) && channel < plan.channels;
    const std::int64_t place = inside ? std::int64_t{in_y * plan.source[1] + in_x} * plan.channels : 0;
    cuda::copy_bytes_or_zeros<bytes>(to + pixel * (channels_at_once * static_cast<int>(sizeof(Stored))), inside ? from + place : source,
                                     inside);
  }
}

/// A thread has two channels of a run of `length` positions. What lies in shared memory needs no bounds: there are zeros beyond the source.
/// Reads the source once, but for where tiles meet. Deterministic.
template <class Stored, int taps, int length>
__global__ void __launch_bounds__(DepthwiseTilePlan::most_threads, 2)
    depthwise_tiles(Stored* result /* (N, H, W, C) */, const Stored* source /* likewise */, const Stored* weight /* (C, taps) */,
                    const Stored* bias /* (C) or null */, const Stored* residual /* like the result, or null */,
                    const __grid_constant__ DepthwiseTilePlan plan) {
  constexpr int channels_at_once = DepthwiseTilePlan::channels_at_once, width = DepthwiseTilePlan::width, lanes = DepthwiseTilePlan::lanes;
  using Channels = cuda::Vector<float, width>;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const weights = reinterpret_cast<float*>(memory);
  auto* const pixels = reinterpret_cast<Stored*>(weights + plan.weights());
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int first_channel = static_cast<int>(blockIdx.y) * channels_at_once;
  const std::uint32_t tile_row = plan.tiles_across.quotient(blockIdx.x), sample = plan.tiles_down.quotient(tile_row);
  const int y = static_cast<int>(plan.tiles_down.remainder(tile_row, sample)) * plan.rows;
  const int x = static_cast<int>(plan.tiles_across.remainder(blockIdx.x, tile_row)) * plan.runs * length;
  const auto stage = [&]<int bytes>() { stage_tile<bytes>(pixels, source, plan, sample, y, x, first_channel, thread, threads); };
  if (plan.copied_bytes == 16) {
    stage.template operator()<16>();
  } else {
    plan.copied_bytes == 8 ? stage.template operator()<8>() : stage.template operator()<4>();
  }
  stage_weights<taps>(weights, weight, plan, first_channel, thread, threads);
  const int pair = thread / (2 * lanes), row_pair = pair / plan.runs * 2, run = pair % plan.runs;
  const int row = row_pair + thread / lanes % 2, channel = thread % lanes * width, position = x + run * length;
  const bool exists = first_channel + channel < plan.channels;
  DepthwiseSums<Stored, width, length> own(bias == nullptr || !exists ? nullptr : bias + first_channel + channel);
  cuda::wait_for_copies();
  __syncthreads();
  if (!exists) return;
  // Of the pair's rows, those of the kernel that meet the source.
  const int first_tap = max(plan.padding[0] - (y + row_pair + 1), 0),
            last_tap = min(plan.source[0] + plan.padding[0] - (y + row_pair), plan.taps[0]);
  const Stored* line = pixels + ((row + first_tap) * plan.pitch + run * length) * channels_at_once + channel;
  const float* tap_weights = weights + first_tap * taps * channels_at_once + channel;
#pragma unroll 1
  for (int tap = first_tap; tap < last_tap; ++tap, line += plan.pitch * channels_at_once, tap_weights += taps * channels_at_once) {
    Channels w[taps];
#pragma unroll
    for (int t = 0; t < taps; ++t) w[t] = *reinterpret_cast<const Channels*>(tap_weights + t * channels_at_once);
#pragma unroll
    for (int i = 0; i < length + taps - 1; ++i) {
      const auto word = *reinterpret_cast<const cuda::Vector<Stored, width>*>(line + i * channels_at_once);
#pragma unroll
      for (int c = 0; c < width; ++c) {
        const float value = convert<float>(word[c]);
#pragma unroll
        for (int t = 0; t < taps; ++t) {
          if (i - t >= 0 && i - t < length) own.sums[i - t][c] += value * w[t][c];
        }
      }
    }
  }
  const int left = y + row < plan.result[0] && row < plan.rows ? plan.result[1] - position : 0;
  const std::int64_t line_of = std::int64_t{sample} * plan.result[0] + y + row;
  const std::int64_t to = (line_of * plan.result[1] + position) * plan.channels + first_channel + channel;
#pragma unroll 1
  for (int i = 0; i < plan.epilogue_steps; ++i) own.finish(plan.epilogue[i], residual + to, plan.channels, left);
  own.store(result + to, plan.channels, left);
}

}  // namespace frit::ops
