#pragma once

#include "frit/ops/convolution/tiles/swept_tiles.cuh"
#include "frit/ops/convolution/tiles/warp_moments.cuh"
#include "frit/ops/cuda/stages.cuh"

// The kernel of swept convolutions: what its warpgroups do to the rows of their columns. NVRTC compiles this header.

namespace frit::ops {

/// The rows of pixels in shared memory, in a ring: where the next one is.
template <class Shape>
struct Ring {
  std::uint32_t pixels, barriers;
  int stage = 0;
  unsigned parity = 0;

  __device__ std::uint32_t row() const { return pixels + stage * Shape::stage_bytes; }
  __device__ cuda::PhaseBarrier full(int of) const { return {barriers + of * cuda::PhaseBarrier::bytes}; }
  __device__ cuda::PhaseBarrier empty(int of) const { return {barriers + (Shape::stages + of) * cuda::PhaseBarrier::bytes}; }
  __device__ void advance() {
    if (++stage == Shape::stages) stage = 0, parity ^= 1;
  }
};

/// By the last warpgroup.
template <class Shape, class Stored = typename Shape::Stored>
__device__ void stage_rows(Ring<Shape> ring, const Stored* input, const SweptTiles& tiles, const SweptShares& shares) {
  const int thread = static_cast<int>(threadIdx.x) % warpgroup::threads;
  for (int row = shares.begin(tiles), end = shares.end(tiles); row < end;) {
    const SweptRows rows = SweptRows::at<Shape>(tiles, row, end);
    row += rows.count();
    for (int i = rows.first_input(tiles); i < rows.last_input(tiles); ++i) {
      ring.empty(ring.stage).wait(ring.parity ^ 1);
      stage_pixels<Shape>(ring.row(), input, tiles, rows, i, thread);
      warpgroup::fence_stores();
      ring.full(ring.stage).arrive();
      ring.advance();
    }
  }
}

/// A thread's sums of three rows of the output, of which the last is complete after each row of the input, and that one while it waits to
/// be stored: two positions.
template <class Shape>
struct SweptSums {
  static constexpr int held = WarpMoments::held,
                       width = cuda::vector_width<typename Shape::Stored>;  ///< channels of a position, and written at once

  warpgroup::WideSums sums = {};
  float complete[2 * held];
  bool pending = false;
  bool inside[2];
  int positions = 0;  ///< of the warp that are inside
  std::int64_t place, row_step, second_step;
  int channel, sample;

  __device__ SweptSums(const SweptTiles& tiles, const SweptRows& rows, int depth, int across, int own_channel)
      : channel(own_channel), sample(rows.sample) {
    for (int h = 0; h < 2; ++h) {
      inside[h] = depth + h * Shape::second_deep < tiles.output[0] && across + h * Shape::second_across < tiles.output[2];
      positions += __popc(__ballot_sync(~0u, inside[h])) / 4;
      inside[h] = inside[h] && channel < tiles.out_channels;
    }
    const std::int64_t line = static_cast<std::int64_t>(rows.sample * tiles.output[0] + depth) * tiles.output[1] + rows.first;
    row_step = static_cast<std::int64_t>(tiles.output[2]) * tiles.out_channels;
    second_step = Shape::second_deep * tiles.output[1] * row_step + Shape::second_across * tiles.out_channels;
    place = line * row_step + static_cast<std::int64_t>(across) * tiles.out_channels + channel;
  }
  /// `is_output`: that row is not one of another block.
  __device__ void shift(bool is_output) {
    pending = is_output;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      complete[k] = sums[32 + k], sums[32 + k] = sums[16 + k], sums[16 + k] = sums[k], sums[k] = 0;
    }
  }
  /// What is to be done with a complete row, in parts: it is stored, and its moments are found.
  template <class Moments>
  static constexpr int parts = 2 * held / width + Moments::parts;
  template <class Sink, class Moments>
  __device__ void finish(int part, const Sink& sink, Moments& moments) {
    if (!pending) return;
    constexpr int stores = 2 * held / width;
    if (part >= stores) {
      moments.add(part - stores, complete, inside, positions);
    } else {
      store(sink, part % 2, part / 2 * width);
    }
    if (part + 1 == parts<Moments>) place += row_step;
    asm volatile("" ::: "memory");  // neither before nor after products that it stands between
  }

 private:
  template <class Sink>
  __device__ void store(const Sink& sink, int h, int first) {
    if (!inside[h]) return;
    const stages::Place to{place + h * second_step + first, channel + first, sample};
    cuda::Vector<float, width> values;
    const auto value = [&](int i) -> float& { return complete[WarpMoments::place(h, first + i)]; };
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = value(i);
    const auto stored = sink.template store<width>(to, values, sink.template fetch<width>(to), sink.template channels<width>(to));
#pragma unroll
    for (int i = 0; i < width; ++i) value(i) = static_cast<float>(stored[i]);
  }
};

/// By the other warpgroups, each for its 64 positions and 32 output channels. `origins`: a number for each channel of each warp.
template <class Shape, class Moments, class Sink, class Stored = typename Shape::Stored>
__device__ void multiply_rows(const Sink& sink, Ring<Shape> ring, std::uint32_t weight, const SweptTiles& tiles, const SweptShares& shares,
                              int warpgroup_index, int first_out_channel, float* origins, const PartialMoments& to) {
  constexpr int line = Shape::group_deep > 1 ? Shape::pixels_across : warpgroup::group_rows;  // to the next 8 positions
  const std::uint64_t left_groups = static_cast<std::uint64_t>(warpgroup::second_word(line * warpgroup::chunk_bytes)) << 32;
  const std::uint64_t right_groups = static_cast<std::uint64_t>(warpgroup::second_word(warpgroup::group_rows * warpgroup::chunk_bytes))
                                     << 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % warpgroup::threads / 32;
  const int across = warpgroup_index % Shape::groups_across * Shape::group_across, other = warpgroup_index / Shape::groups_across;
  const int deep = other % Shape::groups_deep * Shape::group_deep, part = other / Shape::groups_deep;
  const std::uint32_t right = warpgroup::units(weight) + part * Shape::group_weight_chunks +
                              warpgroup::first_word(0, warpgroup::wide_columns * warpgroup::chunk_bytes);
  const int own_deep = deep + 2 * warp * Shape::second_deep, own_across = across + 2 * warp * Shape::second_across + lane / 4;
  const int group_channel = first_out_channel + part * Shape::group_channels,
            own_channel = group_channel + lane % 4 * SweptSums<Shape>::held;
  const int warps = warpgroup::threads / 32, place = warpgroup_index % (Shape::groups_deep * Shape::groups_across) * warps + warp;
  Moments moments(origins + (warpgroup_index * warps + warp) * WarpMoments::channels, group_channel);
  const auto write = [&](int sample) {
    moments.write(to, sample, tiles.out_channels, shares.part(tiles, sample) * SweepColumn<Shape::flat>::moment_warps + place);
  };
  int sample = -1;
  for (int row = shares.begin(tiles), end = shares.end(tiles); row < end;) {
    const SweptRows rows = SweptRows::at<Shape>(tiles, row, end);
    row += rows.count();
    if (Moments::are_found && sample >= 0 && sample != rows.sample) write(sample);
    sample = rows.sample;
    SweptSums<Shape> own(tiles, rows, rows.depth + own_deep, rows.across + own_across, own_channel);
    constexpr int parts = SweptSums<Shape>::template parts<Moments>;
    const auto finish = [&] {
#pragma unroll
      for (int p = 0; p < parts; ++p) own.finish(p, sink, moments);
    };
    int i = rows.first_input(tiles);
    const auto is_output = [&] { return i + tiles.padding[1] - 2 >= rows.first; };
    for (const int last = rows.last_input(tiles); i < last; ++i) {
      ring.full(ring.stage).wait(ring.parity);
      const std::uint32_t left = warpgroup::units(ring.row()) + deep * Shape::pixels_across + across;
      warpgroup::hold(own.sums);
      warpgroup::begin_products();
#pragma unroll
      for (int s = 0; s < Shape::steps; ++s) {
        warpgroup::multiply<Stored>(own.sums, left_groups | (left + Shape::first_word(s)),
                                    right_groups | (right + s * 2 * warpgroup::wide_columns));
        // Of the row before, meanwhile: a step waits for those before it, and leaves time for a part.
#pragma unroll
        for (int p = 0; p < parts; ++p) {
          if (p * Shape::steps / parts == s) own.finish(p, sink, moments);
        }
      }
      warpgroup::commit_products();
      warpgroup::wait_for_products();
      warpgroup::hold(own.sums);
      if (lane == 0) ring.empty(ring.stage).arrive();
      ring.advance();
      own.shift(is_output());
    }
    for (const int last = rows.last_reach(tiles); i < last; ++i) {
      finish();
      own.shift(is_output());
    }
    finish();
  }
  if (Moments::are_found) write(sample);
}

/// A call's numbers.
struct SweptCall {
  SweptTiles tiles;
  const void* weight;
  int channel_parts;       ///< blocks that share the output channels of a row: each has 32, or 64 of a flat column
  PartialMoments moments;  ///< of what is written
};

/// The kernel: four warpgroups multiply, a fifth stages the rows. Blocks of a channel part have equal shares of the output's rows. Reads
/// the input once (some of it twice, where two columns or two blocks meet) for each channel part, and writes each output once.
/// Deterministic.
template <class Shape, class Moments = NoMoments>
struct SweptConvolution : SweptCall {
  using Stored = typename Shape::Stored;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    extern __shared__ __align__(128) unsigned char memory[];
    const std::uint32_t staged_weight = cuda::shared_address(memory), pixels = staged_weight + Shape::weight_bytes;
    const Ring<Shape> ring{pixels, pixels + Shape::stages * Shape::stage_bytes};
    const int first_out_channel = static_cast<int>(blockIdx.x) % channel_parts * Shape::out_channels;
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::stages; ++i) {
        ring.full(i).init(warpgroup::threads);
        ring.empty(i).init(Shape::warpgroups * warpgroup::threads / 32);
      }
    }
    stage_weight<Shape>(staged_weight, static_cast<const Stored*>(weight), tiles, first_out_channel);
    warpgroup::fence_stores();
    __syncthreads();
    const SweptShares shares{static_cast<int>(gridDim.x) / channel_parts, static_cast<int>(blockIdx.x) / channel_parts};
    const int warpgroup_index = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup::threads, 0);  // the same for a warp
    if (warpgroup_index == Shape::warpgroups) {
      stage_rows<Shape>(ring, source.data, tiles, shares);
    } else {
      auto* const origins = reinterpret_cast<float*>(memory + Shape::shared_bytes);
      multiply_rows<Shape, Moments>(sink, ring, staged_weight, tiles, shares, warpgroup_index, first_out_channel, origins, moments);
    }
  }
};

}  // namespace frit::ops
