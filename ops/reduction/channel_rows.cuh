#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/lines.cuh"
#include "frit/ops/cuda/stages.cuh"

// Reductions over the channels of images in channels-last layout, each pixel a line that the registers of a team of threads hold. NVRTC
// compiles this header too.

namespace frit::ops {

/// The pixels of such an image; a power of 2 of threads for one.
struct ChannelRows {
  static constexpr int threads = 256;  ///< of a block

  std::int64_t pixels;    ///< below 2^31
  int channels, workers;  ///< channels: a multiple of batch_size
  cuda::Divisor image;    ///< pixels of a sample

  /// What a team's threads merge their parts with.
  template <class Part>
  __device__ Part merge(Part part) const {
    __shared__ Part shared[threads];
    return merge_team(part, {1, workers}, shared);
  }
  /// Of the calling thread's batch j of a pixel.
  __device__ stages::Place place(std::int64_t pixel, int j) const {
    const int channel = (static_cast<int>(threadIdx.x) % workers + j * workers) * batch_size;
    return {pixel * channels + channel, channel, static_cast<int>(image.quotient(static_cast<std::uint32_t>(pixel)))};
  }
  /// Calls body(pixel) for each pixel of the calling thread, and with one that does not exist where others of its block have one more.
  template <class Body>
  __device__ void for_each(const Body& body) const {
    const int teams = threads / workers, team = static_cast<int>(threadIdx.x) / workers;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * teams;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < pixels; first += step) body(first + team);
  }
  __device__ bool has(std::int64_t pixel, int j) const { return pixel < pixels && place(0, j).channel < channels; }
};

/// What a Source or a Sink needs of the channels of a thread's batches.
template <class Stage, int batches>
struct ChannelsOfRows {
  typename Stage::template Channels<batch_size> of[batches];

  __device__ ChannelsOfRows(const Stage& stage, const ChannelRows& rows) {
#pragma unroll
    for (int j = 0; j < batches; ++j) {
      if (rows.has(0, j)) of[j] = stage.template channels<batch_size>(rows.place(0, j));
    }
  }
};

/// Its operands of a thread's batches of a pixel.
template <class Stage, int batches>
struct WordsOfRow {
  typename Stage::template Words<batch_size> of[batches];

  __device__ WordsOfRow(const Stage& stage, const ChannelRows& rows, std::int64_t pixel) {
#pragma unroll
    for (int j = 0; j < batches; ++j) {
      if (rows.has(pixel, j)) of[j] = stage.template fetch<batch_size>(rows.place(pixel, j));
    }
  }
};

/// A kernel for a reduction as reduce.cuh has them, whose source is not read, of the channels of such an image, of which a thread has so
/// many batches. A result lies where its pixel does among all.
template <class Reduction, int batches>
struct ChannelReduction {
  ChannelRows rows;
  Reduction reduction;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink&) const {
    using State = typename Reduction::State;
    const ChannelsOfRows<Source, batches> channels(source, rows);
    rows.for_each([&](std::int64_t pixel) {
      const WordsOfRow<Source, batches> words(source, rows, pixel);
      State state = State::identity();
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        auto values = source.template values<batch_size>(words.of[j], channels.of[j], stages::Nothing{});
        state = State::merge(state, reduction.read(values.values, Batch(rows.place(pixel, j).channel)));
      }
      state = rows.merge(state);
      if (pixel < rows.pixels && static_cast<int>(threadIdx.x) % rows.workers == 0) reduction.finish(state, Line{.result = pixel});
    });
  }
};

}  // namespace frit::ops
