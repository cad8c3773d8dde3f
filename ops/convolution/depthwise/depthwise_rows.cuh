#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/depthwise/depthwise_axis.cuh"

// Depthwise convolutions over channels-last images: each channel has a kernel of its own.

namespace frit::ops {

/// What is done to the sums before they are stored: adds the residual, or is x < low ? low + slope (x - low) : min(x, high).
struct DepthwiseStep {
  bool adds_residual;
  float low, high, slope;

  __device__ float rectified(float x) const {
    const float below = slope == 0 ? low : low + slope * (x - low), raised = x < low ? below : x;
    return raised > high ? high : raised;
  }
};

/// How a convolution is shared out. A thread takes a run of positions of a row, which are axes[2].run_step() apart. Runs of different
/// phases of a gradient's stride have different taps.
struct DepthwisePlan {
  static constexpr int threads = 256, most_steps = 3;

  DepthwiseAxis axes[3];
  int channels = 0, block_channels = 0;
  int step = 1;                                               ///< of a run's positions
  int phases = 1;                                             ///< sets of taps
  int row_runs = 0, block_rows = 0;                           ///< the runs of a row; the rows of a tile
  cuda::Divisor steps = {}, tile_runs = {};                   ///< of a run; the runs of a tile
  cuda::Divisor row_tiles = {}, run_tiles = {}, depths = {};  ///< tiles of an image
  int tiles = 0, block_tiles = 0;
  int chunks = 0;                                   ///< of a set's taps
  cuda::Divisor row_slots = {}, set_slots = {};     ///< the taps of a row, and of a set, that have a place in shared memory
  int slots = 0;                                    ///< and all
  int source_step = 0;                              ///< elements, from a tap to the next
  int slot_step = 0;                                ///< floats
  std::int64_t line_step = 0, plane_step = 0;       ///< elements of the source, from the row of a tap to that of the next
  int weight_line_step = 0, weight_plane_step = 0;  ///< floats, likewise
  int epilogue_steps = 0;
  DepthwiseStep epilogue[most_steps] = {};
};

/// The weights of a block's channels as floats: (kernel rows, phases, taps, channels), in the order in which runs read the source, or with
/// all taps `in_order`.
template <class Stored>
__device__ void stage_weights(float* staged, const Stored* weight /* (C, taps) */, const DepthwisePlan& plan, int first_channel,
                              bool in_order) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x), threads = static_cast<int>(blockDim.x * blockDim.y);
  int side = 32;  // neighbouring threads, which read neighbouring taps
  while (side > threads || side / 2 >= plan.slots) side /= 2;
  const int groups = threads / side;
  const int channels = min(plan.block_channels, plan.channels - first_channel);
  const DepthwiseAxis& axis = plan.axes[2];
  const int rows = plan.axes[0].taps * plan.axes[1].taps, kernel = rows * axis.taps;
  if (thread / side >= groups) return;
  for (int slot = thread % side; slot < plan.slots; slot += side) {
    const auto number = static_cast<std::uint32_t>(slot), row = plan.row_slots.quotient(number);
    const std::uint32_t in_row = plan.row_slots.remainder(number, row), set = plan.set_slots.quotient(in_row);
    const auto i = static_cast<int>(plan.set_slots.remainder(in_row, set));
    const DepthwiseTaps taps = in_order ? DepthwiseTaps{0, 1, axis.taps, 0, 0} : axis.taps_of(static_cast<int>(set));
    const int tap = static_cast<int>(row) * axis.taps + taps.first + i * taps.step;
    for (int channel = thread / side; channel < channels; channel += groups) {
      const std::int64_t place = static_cast<std::int64_t>(first_channel + channel) * kernel + tap;
      staged[slot * plan.slot_step + channel] = i < taps.count ? convert<float>(weight[place]) : 0.0f;
    }
  }
}

/// A vector of channels; zeros where the source has none.
template <int width, class Stored>
__device__ cuda::Vector<float, width> load_depthwise(const Stored* source, bool inside) {
  cuda::VectorWords<Stored, width> words{};
  if (inside) words = cuda::VectorWords<Stored, width>::load(source, true);
  cuda::Vector<float, width> values;
#pragma unroll
  for (int c = 0; c < width; ++c) values[c] = convert<float>(words[c]);
  return values;
}

/// A bit for each of up to 31 places, `step` apart, that an axis of such a size has.
__device__ inline unsigned places_inside(int places, int first, int step, int size) {
  const auto up = [&](int distance) { return step == 1 ? distance : (distance + step - 1) / step; };
  const int begin = first < 0 ? min(up(-first), places) : 0, end = first < size ? min(up(size - first), places) : 0;
  return begin < end ? (1u << end) - (1u << begin) : 0;
}

/// The sums of a run's positions.
template <class Stored, int width, int length>
struct DepthwiseSums {
  using Channels = cuda::Vector<float, width>;

  Channels sums[length];

  __device__ explicit DepthwiseSums(const Stored* bias /* of the channels, or null */) {
#pragma unroll
    for (int c = 0; c < width; ++c) {
      const float start = bias == nullptr ? 0.0f : convert<float>(bias[c]);
#pragma unroll
      for (int p = 0; p < length; ++p) sums[p][c] = start;
    }
  }

  /// One row of the source: a vector of it is loaded and converted once, for all of up to `taps` taps.
  template <int taps, int stride>
  __device__ void add_row(const Stored* source, int step, unsigned inside, const float* weights, int slot_step, int count) {
    constexpr int places = (length - 1) * stride + taps;
    Channels values[places];
#pragma unroll
    for (int i = 0; i < places; ++i, source += step) values[i] = load_depthwise<width>(source, inside >> i & 1);
    const auto add_tap = [&](int t) {
      const Channels weight = *reinterpret_cast<const Channels*>(weights + t * slot_step);
#pragma unroll
      for (int p = 0; p < length; ++p) {
#pragma unroll
        for (int c = 0; c < width; ++c) sums[p][c] += values[p * stride + t][c] * weight[c];
      }
    };
    if (taps > 3 && count == taps) {  // the weights are read ahead
#pragma unroll
      for (int t = 0; t < taps; ++t) add_tap(t);
      return;
    }
#pragma unroll
    for (int t = 0; t < taps; ++t) {
      if (t >= count) break;
      add_tap(t);
    }
  }

  /// The same where taps do not read neighbours.
  __device__ void add_scattered(const Stored* source, int channels, const DepthwiseAxis& axis, int position, const float* weights,
                                int slot_step) {
#pragma unroll 1
    for (int t = 0; t < axis.taps; ++t) {
      const Channels weight = *reinterpret_cast<const Channels*>(weights + t * slot_step);
#pragma unroll
      for (int p = 0; p < length; ++p) {
        const int at = axis.source_of(position + p, t);
        if (at < 0) continue;
        const Channels values = load_depthwise<width>(source + static_cast<std::int64_t>(at) * channels, true);
#pragma unroll
        for (int c = 0; c < width; ++c) sums[p][c] += values[c] * weight[c];
      }
    }
  }

  __device__ void finish(const DepthwiseStep& step, const Stored* residual, std::int64_t place_step, int count) {
#pragma unroll
    for (int p = 0; p < length; ++p) {
      if (p >= count) break;
      if (step.adds_residual) {
        const Channels values = load_depthwise<width>(residual + p * place_step, true);
#pragma unroll
        for (int c = 0; c < width; ++c) sums[p][c] += values[c];
      } else {
#pragma unroll
        for (int c = 0; c < width; ++c) sums[p][c] = step.rectified(sums[p][c]);
      }
    }
  }

  __device__ void store(Stored* result, std::int64_t place_step, int count) const {
#pragma unroll
    for (int p = 0; p < length; ++p) {
      if (p >= count) break;
      cuda::Vector<Stored, width> elements;
#pragma unroll
      for (int c = 0; c < width; ++c) elements[c] = convert<Stored>(sums[p][c]);
      cuda::store_vector(result + p * place_step, elements);
    }
  }
};

/// Where a thread's run lies.
struct DepthwisePlace {
  int run, row, depth;
  std::uint32_t sample;

  __device__ DepthwisePlace(const DepthwisePlan& plan, std::uint32_t tile) {
    const std::uint32_t tile_row = plan.tile_runs.quotient(threadIdx.y), tile_run = plan.tile_runs.remainder(threadIdx.y, tile_row);
    std::uint32_t rest = plan.row_tiles.quotient(tile);
    row = static_cast<int>(plan.row_tiles.remainder(tile, rest) * static_cast<std::uint32_t>(plan.block_rows) + tile_row);
    const std::uint32_t plane = plan.run_tiles.quotient(rest);
    run = static_cast<int>(plan.run_tiles.remainder(rest, plane) * plan.tile_runs.value<std::uint32_t>() + tile_run);
    sample = plan.depths.quotient(plane);
    depth = static_cast<int>(plan.depths.remainder(plane, sample));
  }
  __device__ int phase(const DepthwisePlan& plan) const {
    return plan.phases == 1 ? 0 : static_cast<int>(plan.steps.remainder(std::uint32_t(run), plan.steps.quotient(std::uint32_t(run))));
  }
  /// The first one of a run.
  __device__ int position(const DepthwisePlan& plan, int length) const {
    const auto turn = static_cast<int>(plan.steps.quotient(std::uint32_t(run)));
    return run + turn * (length - 1) * plan.step;
  }
};

/// Positions of a run: as many as registers allow.
template <int taps, int stride>
inline constexpr int run_length = taps == 0 || stride > 1 ? 4 : 7;

/// A block some channels of some neighbouring rows and runs; its weights lie in shared memory. A thread `width` channels of a run, and
/// neighbouring threads neighbouring channels: a row of the source comes from the first-level cache for all rows of taps but the first.
/// taps == 0: any stride and dilation, a load for each tap. Deterministic.
template <class Stored, int width, int taps, int stride>
__global__ void __launch_bounds__(DepthwisePlan::threads, sizeof(Stored) == 2 && taps == 3 ? 3 : 2)
    depthwise_rows(Stored* result /* (N, D, H, W, C) */, const Stored* source /* likewise */, const Stored* weight /* (C, taps) */,
                   const Stored* bias /* (C) or null */, const Stored* residual /* like the result, or null */,
                   const __grid_constant__ DepthwisePlan plan) {
  constexpr int length = run_length<taps, stride>;
  constexpr bool scattered = taps == 0;
  extern __shared__ __align__(16) float staged[];
  const DepthwiseAxis &depth_axis = plan.axes[0], &row_axis = plan.axes[1], &axis = plan.axes[2];
  const int block_channel = static_cast<int>(blockIdx.y) * plan.block_channels, lane = static_cast<int>(threadIdx.x) * width;
  stage_weights(staged, weight, plan, block_channel, scattered);
  __syncthreads();
  const int channel = block_channel + lane;
  if (channel >= plan.channels) return;
  const int end = min(plan.tiles, static_cast<int>(blockIdx.x + 1) * plan.block_tiles);
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x) * plan.block_tiles; tile < end; ++tile) {
    const DepthwisePlace place(plan, static_cast<std::uint32_t>(tile));
    if (place.run >= plan.row_runs || place.row >= row_axis.result || place.position(plan, length) >= axis.result) continue;
    DepthwiseSums<Stored, width, length> sums(bias == nullptr ? nullptr : bias + channel);
    const DepthwiseTaps depths = depth_axis.taps_of(place.depth).within(depth_axis.source);
    const DepthwiseTaps rows = row_axis.taps_of(place.row).within(row_axis.source), columns = axis.taps_of(place.position(plan, length));
    const std::int64_t first_line = (std::int64_t{place.sample} * depth_axis.source + depths.source) * row_axis.source + rows.source;
    const int first_row = depths.first * row_axis.taps + rows.first;
#pragma unroll 1
    for (int chunk = 0; chunk < (taps > 3 ? plan.chunks : 1); ++chunk) {
      const int first = scattered ? 0 : columns.source + chunk * taps * columns.source_step,
                count = min(columns.count - chunk * taps, taps);
      const unsigned inside = places_inside((length - 1) * stride + count, first, columns.source_step, axis.source);
      const Stored* line = source + (first_line * axis.source + first) * plan.channels + channel;
      const float* weights = staged + first_row * plan.row_slots.value<int>() * plan.slot_step + lane;
      if (!scattered) weights += (place.phase(plan) * plan.chunks + chunk) * taps * plan.slot_step;
#pragma unroll 1
      for (int a = depths.count; a > 0; --a) {
#pragma unroll 1
        for (int b = rows.count; b > 0; --b) {
          if constexpr (scattered) {
            sums.add_scattered(line, plan.channels, axis, place.position(plan, length), weights, plan.slot_step);
          } else {
            sums.template add_row<taps, stride>(line, plan.source_step, inside, weights, plan.slot_step, count);
          }
          line += plan.line_step, weights += plan.weight_line_step;
        }
        line += plan.plane_step - rows.count * plan.line_step, weights += plan.weight_plane_step - rows.count * plan.weight_line_step;
      }
    }
    const int position = place.position(plan, length), left = (axis.result - position + plan.step - 1) / plan.step;
    const std::int64_t line = (std::int64_t{place.sample} * depth_axis.result + place.depth) * row_axis.result + place.row;
    const std::int64_t to = (line * axis.result + position) * plan.channels + channel, to_step = std::int64_t{plan.step} * plan.channels;
#pragma unroll 1
    for (int i = 0; i < plan.epilogue_steps; ++i) sums.finish(plan.epilogue[i], residual + to, to_step, left);
    sums.store(result + to, to_step, left);
  }
}

}  // namespace frit::ops
