#pragma once

#include <algorithm>

#include "frit/core/convert.h"
#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/libraries/convolution_geometry.h"

// Depthwise convolutions over channels-last images: each channel has a kernel of its own. A convolution and its data gradient are one
// kernel, which gathers its result from its source.

namespace frit::ops {

/// An image axis: where the kernel's taps read for a position of the result.
struct DepthwiseAxis {
  int source, result, taps, stride, padding, dilation;
  bool backward;

  /// Negative where that is outside, or skipped by the stride.
  FRIT_HOST_DEVICE int source_of(int position, int tap) const {
    int at = position * stride - padding + tap * dilation;
    if (backward) {
      const int distance = position + padding - tap * dilation;
      at = distance / stride;
      if (at * stride != distance) return -1;
    }
    return at < source ? at : -1;
  }
};

inline DepthwiseAxis depthwise_axis(const ConvolutionGeometry& g, std::size_t axis, bool backward) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const int input = number(g.input[axis]), output = number(g.output[axis]);
  return {.source = backward ? output : input,
          .result = backward ? input : output,
          .taps = number(g.kernel[axis]),
          .stride = number(g.stride[axis]),
          .padding = number(g.padding[axis]),
          .dilation = number(g.dilation[axis]),
          .backward = backward};
}

/// Whether sizes, and what they make places of, can be counted in an int.
inline bool depthwise_counts(const ConvolutionGeometry& g) {
  constexpr std::int64_t most = 1 << 28;
  bool small = g.groups <= most && product(g.kernel) <= 4096;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t kernel = g.kernel[axis] * g.dilation[axis], result = g.output[axis] * g.stride[axis];
    small = small && g.input[axis] + 2 * g.padding[axis] + kernel <= most && result <= most;
  }
  const std::int64_t step = std::max(g.dilation[2], g.stride[2]);
  return small && step * g.groups <= INT32_MAX && g.input[0] * g.input[1] <= INT32_MAX && g.batch * g.output[0] * g.output[1] <= INT32_MAX;
}

/// A run of positions of a row, every `step`-th one, whose taps read the source every `source_step` positions: a step of 1 but for a
/// dilation and for the gradient of a stride. Those are what makes the taps of a run neighbours; runs of different phases of a stride have
/// different taps.
struct DepthwiseRuns {
  int step, source_step;
  int phases;  ///< sets of taps
  int taps;    ///< of the longest set, with none between them

  explicit DepthwiseRuns(const DepthwiseAxis& axis)
      : step(axis.backward && axis.stride > 1 ? axis.stride
             : axis.stride > 1                ? 1
                                              : axis.dilation),
        source_step(axis.stride > 1 ? 1 : axis.dilation),
        phases(axis.backward ? axis.stride : 1),
        taps((axis.taps + phases - 1) / phases) {}

  FRIT_HOST_DEVICE int first_tap(const DepthwiseAxis& axis, int phase) const { return (phase + axis.padding) % phases; }
  FRIT_HOST_DEVICE int tap_count(const DepthwiseAxis& axis, int phase) const {
    const int from = first_tap(axis, phase);
    return from < axis.taps ? (axis.taps - from + phases - 1) / phases : 0;
  }
  /// The tap of a set that reads the i-th position of the source: the last one first in a gradient.
  FRIT_HOST_DEVICE int tap(const DepthwiseAxis& axis, int phase, int i) const {
    return axis.backward ? first_tap(axis, phase) + (tap_count(axis, phase) - 1 - i) * phases : i;
  }
  /// What the first tap of a set reads for a position.
  FRIT_HOST_DEVICE int first_source(const DepthwiseAxis& axis, int phase, int position) const {
    if (!axis.backward) return position * axis.stride - axis.padding;
    return (position + axis.padding - first_tap(axis, phase)) / axis.stride - (tap_count(axis, phase) - 1) * source_step;
  }
};

/// What is done to the sums before they are stored: adds the residual, or is x < low ? low + slope (x - low) : min(x, high).
struct DepthwiseStep {
  bool adds_residual;
  float low, high, slope;

  __device__ float rectified(float x) const {
    const float below = slope == 0 ? low : low + slope * (x - low), raised = x < low ? below : x;
    return raised > high ? high : raised;
  }
};

struct DepthwisePlan {
  static constexpr int threads = 256, most_steps = 3;

  DepthwiseAxis axes[3];
  DepthwiseRuns runs;
  int channels = 0, block_channels = 0;
  int row_runs = 0, block_rows = 0;                             ///< the runs of a row; the rows of a block
  cuda::Divisor steps = {}, block_runs = {};                    ///< of a run; the runs of a block
  cuda::Divisor run_blocks = {}, row_blocks = {}, depths = {};  ///< blocks of an image
  int chunks = 0, slots = 0;                                    ///< of a set's taps; the taps that have a place in shared memory
  int slot_step = 0;                                            ///< floats
  int epilogue_steps = 0;
  DepthwiseStep epilogue[most_steps] = {};
};

#ifdef __CUDACC__
/// The weights of a block's channels as floats: (kernel rows, phases, taps, channels), in the order in which runs read the source.
template <class Stored>
__device__ void stage_weights(float* staged, const Stored* weight /* (C, taps) */, const DepthwisePlan& plan, int first_channel,
                              bool in_order) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x), threads = static_cast<int>(blockDim.x * blockDim.y);
  const int side = min(threads, 32), groups = threads / side;  // of neighbouring threads, which read neighbouring taps
  const int channels = min(plan.block_channels, plan.channels - first_channel);
  const DepthwiseAxis& axis = plan.axes[2];
  const int kernel = plan.axes[0].taps * plan.axes[1].taps * axis.taps, phases = in_order ? 1 : plan.runs.phases;
  const int row_slots = plan.slots / (plan.axes[0].taps * plan.axes[1].taps), set_slots = row_slots / phases;
  if (thread / side >= groups) return;
  for (int slot = thread % side; slot < plan.slots; slot += side) {
    const int row = slot / row_slots, set = (slot - row * row_slots) / set_slots, i = slot % set_slots;
    const bool used = in_order ? i < axis.taps : i < plan.runs.tap_count(axis, set);
    const int tap = row * axis.taps + (in_order ? i : plan.runs.tap(axis, set, i));
    for (int channel = thread / side; channel < channels; channel += groups) {
      staged[slot * plan.slot_step + channel] =
          used ? convert<float>(weight[static_cast<std::int64_t>(first_channel + channel) * kernel + tap]) : 0.0f;
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

/// A bit for each place, a step apart, that an axis of such a size has.
template <int places>
__device__ unsigned places_inside(int first, int step, int size) {
  unsigned inside = 0;
#pragma unroll 1
  for (int i = 0, at = first; i < places; ++i, at += step) inside |= (at >= 0 && at < size ? 1u : 0u) << i;
  return inside;
}

/// The sums of a run's positions.
template <class Stored, int width, int length>
struct DepthwiseSums {
  using Channels = cuda::Vector<float, width>;

  Channels sums[length];

  /// One row of the source: a vector of it is loaded and converted once, for all of up to `taps` taps.
  template <int taps, int stride>
  __device__ void add_row(const Stored* source, int step, unsigned inside, const float* weights, int slot_step, int count) {
    constexpr int places = (length - 1) * stride + taps;
    Channels values[places];
#pragma unroll
    for (int i = 0; i < places; ++i, source += step) values[i] = load_depthwise<width>(source, inside >> i & 1);
#pragma unroll
    for (int t = 0; t < taps; ++t) {
      if (t >= count) break;
      const Channels weight = *reinterpret_cast<const Channels*>(weights + t * slot_step);
#pragma unroll
      for (int p = 0; p < length; ++p) {
#pragma unroll
        for (int c = 0; c < width; ++c) sums[p][c] += values[p * stride + t][c] * weight[c];
      }
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
  const std::uint32_t row_in_block = plan.block_runs.quotient(threadIdx.y);
  std::uint32_t rest = blockIdx.x, next = plan.run_blocks.quotient(rest);
  const auto run = static_cast<int>(plan.run_blocks.remainder(rest, next) * plan.block_runs.value<std::uint32_t>() +
                                    plan.block_runs.remainder(threadIdx.y, row_in_block));
  rest = next, next = plan.row_blocks.quotient(rest);
  const int row = static_cast<int>(plan.row_blocks.remainder(rest, next)) * plan.block_rows + static_cast<int>(row_in_block);
  const std::uint32_t sample = plan.depths.quotient(next);
  const int depth = static_cast<int>(plan.depths.remainder(next, sample));
  const auto turn = static_cast<int>(plan.steps.quotient(static_cast<std::uint32_t>(run)));
  const int step = scattered ? 1 : plan.runs.step, phase = run - turn * step, position = phase + turn * length * step;
  const int channel = block_channel + lane;
  if (run >= plan.row_runs || row >= row_axis.result || position >= axis.result || channel >= plan.channels) return;

  DepthwiseSums<Stored, width, length> sums;
#pragma unroll
  for (int c = 0; c < width; ++c) {
    const float start = bias == nullptr ? 0.0f : convert<float>(bias[channel + c]);
#pragma unroll
    for (int p = 0; p < length; ++p) sums.sums[p][c] = start;
  }
  const int set = plan.runs.phases > 1 ? phase : 0, count = plan.runs.tap_count(axis, set);
  const int set_slots = scattered ? axis.taps : plan.chunks * taps, row_slots = set_slots * (scattered ? 1 : plan.runs.phases);
  const std::int64_t source_line = std::int64_t{axis.source} * plan.channels;
  const Stored* const image = source + sample * (std::int64_t{depth_axis.source} * row_axis.source) * source_line + channel;
#pragma unroll 1
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    const int begin = plan.runs.first_source(axis, set, position) + chunk * taps * plan.runs.source_step;
    const unsigned inside = places_inside<(length - 1) * stride + taps>(begin, plan.runs.source_step, axis.source);
    const Stored* const from = image + static_cast<std::int64_t>(begin) * plan.channels;
    const float* const chunk_weights = staged + (scattered ? 0 : set * set_slots + chunk * taps) * plan.slot_step + lane;
#pragma unroll 1
    for (int a = 0; a < depth_axis.taps; ++a) {
      const int source_depth = depth_axis.source_of(depth, a);
      if (source_depth < 0) continue;
#pragma unroll 1
      for (int b = 0; b < row_axis.taps; ++b) {
        const int source_row = row_axis.source_of(row, b);
        if (source_row < 0) continue;
        const std::int64_t line = (source_depth * row_axis.source + source_row) * source_line;
        const float* const weights = chunk_weights + (a * row_axis.taps + b) * row_slots * plan.slot_step;
        if constexpr (scattered) {
          sums.add_scattered(image + line, plan.channels, axis, position, weights, plan.slot_step);
        } else {
          const int step = plan.runs.source_step * plan.channels;
          sums.template add_row<taps, stride>(from + line, step, inside, weights, plan.slot_step, count - chunk * taps);
        }
      }
    }
  }

  const int left = (axis.result - position + step - 1) / step;
  const std::int64_t line = (static_cast<std::int64_t>(sample) * depth_axis.result + depth) * row_axis.result + row;
  const std::int64_t place = (line * axis.result + position) * plan.channels + channel, place_step = std::int64_t{step} * plan.channels;
#pragma unroll 1
  for (int i = 0; i < plan.epilogue_steps; ++i) sums.finish(plan.epilogue[i], residual + place, place_step, left);
  sums.store(result + place, place_step, left);
}
#endif

}  // namespace frit::ops
