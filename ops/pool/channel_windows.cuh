#pragma once

#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/pool/windows.cuh"

namespace frit::ops {

// Kernels for pooling of channels-last images, between a source and a sink. NVRTC compiles this header too.

/// Threads of a block, and blocks of a multiprocessor, for which there are registers: most of the time they wait for memory.
inline constexpr int pool_threads = 256, resident_pool_blocks = 4;

/// How blocks share the windows of channels-last images out: a thread has a vector of channels of one window, or of some of its elements
/// where `strips` threads have it together.
struct ChannelSplit {
  int lanes, strips, windows;  ///< of a block: vectors of channels, threads for each, windows
  std::int64_t channel_blocks;
};

/// An element of a window, from one to the next in their order.
template <class Index>
class WindowCursor {
 public:
  /// At element `first`, or nowhere if that is negative.
  __device__ WindowCursor(const Window<Index>& window, Index first)
      : window_(window), depth_(window.depths.begin), height_(window.heights.begin), width_(window.widths.begin) {
    if (first < 0 || window.empty()) depth_ = window.depths.end;
    if (first > 0) advance(first);
  }
  __device__ bool inside() const { return depth_ < window_.depths.end; }
  __device__ Index place(const PoolPlan<Index>& pool) const { return pool.place(depth_, height_, width_); }
  __device__ void advance(Index elements) {
    width_ += elements * window_.widths.step;
    while (width_ >= window_.widths.end && inside()) {
      width_ -= window_.widths.count() * window_.widths.step;
      height_ += window_.heights.step;
      if (height_ < window_.heights.end) continue;
      height_ = window_.heights.begin;
      depth_ += window_.depths.step;
    }
  }

 private:
  const Window<Index>& window_;
  Index depth_, height_, width_;
};

/// A kernel that reduces windows, `width` channels of one to a thread; see windows.cuh of the Reduction. Deterministic.
template <int width, class Index, class Reduction>
struct ChannelWindows {
  Reduction reduction;
  PoolPlan<Index> pool;
  Index windows, channels;
  ChannelSplit split;

  /// The kernel of `pool_threads` threads a block.
  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    using C = typename Source::Computed;
    using State = typename Reduction::State;
    constexpr int at_once = 4;
    __shared__ State shared[pool_threads][width];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % split.lanes, strip = thread / split.lanes % split.strips;
    const int place_in_block = thread / (split.lanes * split.strips);
    const std::int64_t groups = (windows + split.windows - 1) / split.windows;
    for (std::int64_t item = blockIdx.x; item < groups * split.channel_blocks; item += gridDim.x) {
      const std::int64_t number = item / split.channel_blocks * split.windows + place_in_block;
      const Index channel = static_cast<Index>((item % split.channel_blocks * split.lanes + lane) * width);
      const bool active = place_in_block < split.windows && number < windows && channel < channels;
      const Window<Index> window(pool, static_cast<Index>(active ? number : 0));
      const std::int64_t image = static_cast<std::int64_t>(window.plane) * pool.image_elements() * channels + (active ? channel : 0);
      const auto at = [&](std::int64_t offset) { return stages::Place{offset, static_cast<int>(channel), static_cast<int>(window.plane)}; };
      const std::int64_t result = number * channels + channel;
      const bool writes = active && strip == 0;
      typename Source::template Channels<width> of_channels;
      typename Sink::template Channels<width> sink_channels;
      typename Sink::template Words<width> sink_words;
      if (active) of_channels = source.template channels<width>(at(image));
      if (writes) sink_channels = sink.template channels<width>(at(result)), sink_words = sink.template fetch<width>(at(result));
      WindowCursor<Index> cursor(window, active ? strip : -1);
      State states[width];
#pragma unroll
      for (int k = 0; k < width; ++k) states[k] = reduction.begin(cursor.inside() ? cursor.place(pool) : no_place);
      while (cursor.inside()) {
        typename Source::template Words<width> words[at_once];
        Index places[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          places[j] = cursor.inside() ? cursor.place(pool) : Index{-1};
          if (places[j] < 0) continue;
          words[j] = source.template fetch<width>(at(image + static_cast<std::int64_t>(places[j]) * channels));
          cursor.advance(split.strips);
        }
        cuda::Vector<C, width> vectors[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) vectors[j] = source.template values<width>(words[j], of_channels, stages::Nothing{});
#pragma unroll
        for (int k = 0; k < width; ++k) {
          C values[at_once];
#pragma unroll
          for (int j = 0; j < at_once; ++j) values[j] = places[j] >= 0 ? vectors[j][k] : Reduction::missing();
          reduction.take(states[k], values, places);
        }
      }
      if (split.strips > 1) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < width; ++k) shared[thread][k] = states[k];
        __syncthreads();
        for (int other = 1; other < split.strips && strip == 0; ++other) {
#pragma unroll
          for (int k = 0; k < width; ++k) states[k] = states[k] + shared[min(thread + other * split.lanes, pool_threads - 1)][k];
        }
      }
      if (writes) sink.template store<width>(at(result), reduction.finish(result, pool, window, states), sink_words, sink_channels);
    }
  }
};

/// A kernel that gathers what windows hand back to elements, a vector of channels at a time; `row_threads` threads have a row of the image.
/// See windows.cuh of the Share. The source gives the windows' gradients. Deterministic.
template <int width, class Index, class Share>
struct ChannelShares {
  Share share;
  PoolPlan<Index> pool;
  cuda::Divisor vectors, rows, depths;  ///< of a pixel; of a plane; of a sample
  Index row_count;                      ///< of all samples
  int row_threads;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    const Index channels = vectors.value<Index>() * width, row_vectors = vectors.value<Index>() * pool.width.image;
    const int at_once = pool_threads / row_threads, thread = static_cast<int>(threadIdx.x);
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * at_once;
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * at_once + thread / row_threads; row < row_count; row += step) {
      Index sample = static_cast<Index>(row);
      const Index h = split_off(sample, rows), d = split_off(sample, depths);
      const PlaceRange<Index> window_depths = pool.depth.windows(d), window_rows = pool.height.windows(h);
      for (Index v = thread % row_threads; v < row_vectors; v += row_threads) {
        Index w = v;
        const Index channel = split_off(w, vectors) * width, place = pool.place(d, h, w);
        const auto at = [&](std::int64_t offset) { return stages::Place{offset, static_cast<int>(channel), static_cast<int>(sample)}; };
        const std::int64_t own = (row * row_vectors + v) * width;
        const auto of_channels = source.template channels<width>(at(0));
        const auto sink_channels = sink.template channels<width>(at(0));
        const auto sink_words = sink.template fetch<width>(at(own));
        const PlaceRange<Index> windows = pool.width.windows(w);
        cuda::Vector<typename Source::Computed, width> sums = {};
        for (Index od = window_depths.begin; od < window_depths.end; ++od) {
          for (Index oh = window_rows.begin; oh < window_rows.end; ++oh) {
            const Index first = ((sample * pool.depth.output + od) * pool.height.output + oh) * pool.width.output;
            for (Index ow = windows.begin; ow < windows.end; ++ow) {
              const Index window = (first + ow) * channels + channel;
              const auto words = source.template fetch<width>(at(window));
              const auto loaded = share.template load<width>(window);
              share.add(sums, source.template values<width>(words, of_channels, stages::Nothing{}), loaded, pool, od, oh, ow, place);
            }
          }
        }
        sink.template store<width>(at(own), sums, sink_words, sink_channels);
      }
    }
  }
};

}  // namespace frit::ops
