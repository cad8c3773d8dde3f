#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/lines.cuh"
#include "frit/ops/cuda/stages.cuh"

// Reductions over the channels of images in channels-last layout, each pixel a line that the registers of a team of threads hold. NVRTC
// compiles this header too.

namespace frit::ops {

/// The pixels of such an image.
struct ChannelRows {
  static constexpr int threads = 256;     ///< of a block
  static constexpr int most_batches = 2;  ///< of a pixel that a thread has: few registers, so that many threads have elements under way

  std::int64_t pixels;  ///< below 2^31
  cuda::Divisor image;  ///< pixels of a sample

  /// Threads for a pixel, a power of 2: of a short one with a batch each, so that neighbours read side by side.
  FRIT_HOST_DEVICE static constexpr int workers(std::int64_t channels) {
    int count = 1;
    while (channels > count * most_batches * batch_size) count *= 2;
    const bool is_short = count < 4 && channels == count * most_batches * batch_size;
    return is_short ? count * most_batches : count;
  }
  /// Batches of each thread, or one less.
  FRIT_HOST_DEVICE static constexpr int batches(std::int64_t channels) {
    const int step = workers(channels) * batch_size;
    return static_cast<int>((channels + step - 1) / step);
  }
  /// Pixels whose results a team finds together, where it is within a warp: each of so many threads ends up with one, so that most of them
  /// are at work to the end.
  FRIT_HOST_DEVICE static constexpr int at_once(std::int64_t channels) {
    const int most = batches(channels) == 1 ? 4 : 2, count = workers(channels);
    return count > cuda::warp_size ? 1 : count < most ? count : most;
  }
};

/// A team of neighbouring threads for a pixel of so many channels, a multiple of batch_size. The number is a constant of a kernel, and so
/// are places: where the compiler does not know what it divides by, they cost more instructions than the elements there.
template <int channels>
class ChannelTeam {
 public:
  static constexpr int workers = ChannelRows::workers(channels);
  static constexpr int batches = ChannelRows::batches(channels), at_once = ChannelRows::at_once(channels);

  __device__ explicit ChannelTeam(const ChannelRows& rows) : rows_(rows), worker_(static_cast<int>(threadIdx.x % workers)) {}

  __device__ bool is_first() const { return worker_ == 0; }
  __device__ bool has(int j) const { return (j + 1) * workers * batch_size <= channels || (worker_ + j * workers) * batch_size < channels; }
  /// The first one of its batch j; of its batch 0, if it has no such batch.
  __device__ int channel(int j) const { return (worker_ + (has(j) ? j * workers : 0)) * batch_size; }
  __device__ stages::Place place(std::uint32_t pixel, int j) const {
    return {static_cast<std::int64_t>(pixel) * channels + channel(j), channel(j), static_cast<int>(rows_.image.quotient(pixel))};
  }
  /// Every thread gets the parts of all merged.
  template <class Part>
  __device__ Part merge(Part part) const {
#pragma unroll
    for (int mask = 1; mask < workers && mask < cuda::warp_size; mask *= 2) part = Part::merge(part, cuda::shuffle_xor(part, mask));
    if constexpr (workers > cuda::warp_size) {
      __shared__ Part shared[ChannelRows::threads];
      part = merge_team(part, {cuda::warp_size, workers}, shared);
    }
    return part;
  }
  /// Of at_once pixels, the parts of all threads merged: a thread gets the state of one pixel, which is its alone if it is the `first`.
  template <class State>
  struct Merged {
    State state;
    int pixel;
    bool first;
  };
  template <class State>
  __device__ Merged<State> merge_pixels(State (&states)[at_once]) const {
    if constexpr (at_once == 1) {
      return {merge(states[0]), 0, is_first()};
    } else {
      int pixel = 0, mask = 1;
#pragma unroll
      for (int left = at_once / 2; left > 0; left /= 2, mask *= 2) {
        const bool second = (worker_ & mask) != 0;  // keeps the second half of the pixels, and hands over the first
        pixel += second ? left : 0;
#pragma unroll
        for (int i = 0; i < left; ++i) {
          const State kept = second ? states[i + left] : states[i], other = second ? states[i] : states[i + left];
          states[i] = State::merge(kept, cuda::shuffle_xor(other, mask));
        }
      }
#pragma unroll
      for (; mask < workers; mask *= 2) states[0] = State::merge(states[0], cuda::shuffle_xor(states[0], mask));
      return {states[0], pixel, worker_ < at_once};
    }
  }
  /// Calls body(pixels, exist) for `few` pixels of the thread at a time; those that do not exist, where others of its block have one more,
  /// are the last one.
  template <int few = at_once, class Body>
  __device__ void for_each_few(const Body& body) const {
    constexpr std::uint32_t teams = ChannelRows::threads / workers;
    const auto pixels = static_cast<std::uint32_t>(rows_.pixels);
    for (std::uint32_t first = blockIdx.x * teams * few; first < pixels; first += gridDim.x * teams * few) {
      std::uint32_t own[few];
      bool exist[few];
#pragma unroll
      for (int i = 0; i < few; ++i) {
        const std::uint32_t pixel = first + i * teams + threadIdx.x / workers;
        exist[i] = pixel < pixels;
        own[i] = exist[i] ? pixel : pixels - 1;
      }
      body(own, exist);
    }
  }
  /// Calls body(pixel, exists) for each likewise.
  template <class Body>
  __device__ void for_each(const Body& body) const {
    for_each_few<1>([&](const std::uint32_t(&pixel)[1], const bool(&exists)[1]) { body(pixel[0], exists[0]); });
  }

 private:
  const ChannelRows& rows_;
  int worker_;
};

/// What a Source or a Sink needs of the channels of a thread's batches. Read where it is used, from a near cache: registers that kept it
/// would be missing for elements under way.
template <class Stage, class Team>
struct ChannelsOfRow {
  typename Stage::template Channels<batch_size> of[Team::batches];

  __device__ ChannelsOfRow(const Stage& stage, const Team& team) {
#pragma unroll
    for (int j = 0; j < Team::batches; ++j) of[j] = stage.template channels<batch_size>(team.place(0, j));
  }
};

/// Its operands of a thread's batches of a pixel.
template <class Stage, class Team>
struct WordsOfRow {
  typename Stage::template Words<batch_size> of[Team::batches];

  WordsOfRow() = default;
  __device__ WordsOfRow(const Stage& stage, const Team& team, std::uint32_t pixel) {
#pragma unroll
    for (int j = 0; j < Team::batches; ++j) of[j] = stage.template fetch<batch_size>(team.place(pixel, j));
  }
};

/// A kernel for a reduction as reduce.cuh has them, whose source is not read, of the channels of such an image. A result lies where its
/// pixel does among all.
template <class Reduction, int channels>
struct ChannelReduction {
  ChannelRows rows;
  Reduction reduction;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink&) const {
    using State = typename Reduction::State;
    using Team = ChannelTeam<channels>;
    const Team team(rows);
    team.for_each_few([&](const std::uint32_t(&pixels)[Team::at_once], const bool(&exist)[Team::at_once]) {
      WordsOfRow<Source, Team> words[Team::at_once];
#pragma unroll
      for (int i = 0; i < Team::at_once; ++i) words[i] = WordsOfRow<Source, Team>(source, team, pixels[i]);
      const ChannelsOfRow<Source, Team> of_channels(source, team);
      State states[Team::at_once];
#pragma unroll
      for (int i = 0; i < Team::at_once; ++i) {
        states[i] = State::identity();
#pragma unroll
        for (int j = 0; j < Team::batches; ++j) {
          if (!team.has(j)) continue;
          auto values = source.template values<batch_size>(words[i].of[j], of_channels.of[j], stages::Nothing{});
          const State found = reduction.read(values.values, Batch(team.channel(j)));
          states[i] = j == 0 ? found : State::merge(states[i], found);
        }
      }
      const auto merged = team.merge_pixels(states);
      std::uint32_t pixel = pixels[0];
      bool exists = exist[0];
#pragma unroll
      for (int i = 1; i < Team::at_once; ++i) {
        pixel = merged.pixel == i ? pixels[i] : pixel;
        exists = merged.pixel == i ? exist[i] : exists;
      }
      if (exists && merged.first) reduction.finish(merged.state, Line{.result = pixel});
    });
  }
};

}  // namespace frit::ops
