#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "frit/core/tensor.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/operator/planes.h"

namespace frit::ops {

// How the CPU's chains go through an image, which lies channels-last; one that does not is copied so.

/// Elements side by side that one step through an image computes: some channels of a pixel, or all of several pixels if they are few.
struct ChannelLanes {
  static constexpr std::int64_t most = 64;
  std::int64_t channels, first, count;  ///< of the image; the first lane's channel; lanes

  /// Calls body(lanes) until all channels have had their turn.
  template <class Body>
  static void for_each(std::int64_t channels, const Body& body) {
    if (2 * channels <= most) return body(ChannelLanes{channels, 0, most / channels * channels});
    for (std::int64_t c = 0; c < channels; c += most) body(ChannelLanes{channels, c, std::min(most, channels - c)});
  }

  std::int64_t step() const { return std::max(count, channels); }
  /// Calls body(first element, elements) for the steps through so many pixels, from element `begin` on.
  template <class Body>
  void for_each_step(std::int64_t begin, std::int64_t pixels, const Body& body) const {
    const std::int64_t elements = pixels * channels;
    for (std::int64_t i = begin; i < elements; i += step()) body(i, std::min(count, elements - i));
  }

  std::int64_t channel(std::int64_t lane) const { return (first + lane) % channels; }
  /// A number for each lane.
  template <class T = double, class Number>
  std::array<T, most> of(const Number& number_of_channel) const {
    std::array<T, most> result{};
    for (std::int64_t i = 0; i < count; ++i) result[static_cast<std::size_t>(i)] = static_cast<T>(number_of_channel(channel(i)));
    return result;
  }
};

/// Of each channel, the sums of the differences from a pivot and of their squares.
struct DifferenceSums {
  double sum = 0, square_sum = 0;

  DifferenceSums& operator+=(const DifferenceSums& other) {
    sum += other.sum;
    square_sum += other.square_sum;
    return *this;
  }
  /// The pivot is one of the `count` elements.
  Moments moments(double pivot, std::int64_t count) const { return moments_of(count, pivot, sum, square_sum); }
};

/// The pixels whose sums are made together.
inline EvenBlocks channel_sum_blocks(std::int64_t channels, std::int64_t pixels) {
  constexpr std::int64_t elements = 16384;
  return {pixels, std::max<std::int64_t>(16, elements / std::max<std::int64_t>(1, channels))};
}

/// Blocks of rows of so many elements that the next cache holds one, and its gradient, whole; multiples of the windows' stride.
inline EvenBlocks row_blocks(std::int64_t rows, std::int64_t row_elements, std::int64_t stride = 1) {
  constexpr std::int64_t elements = 32768;
  return {rows, std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, row_elements * stride)) * stride, stride};
}

/// What the lanes have in common while they pass over some pixels.
class LaneDifferences {
 public:
  explicit LaneDifferences(const std::array<double, ChannelLanes::most>& pivots) : pivots_(pivots) {}

  /// Adds `steps` times `count` elements from x on, `step` apart.
  template <int steps, class T>
  void add(const T* x, std::int64_t step, std::int64_t count) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      double sum = 0, square_sum = 0;
#pragma GCC unroll 4
      for (int k = 0; k < steps; ++k) {
        const double difference = static_cast<double>(x[k * step + static_cast<std::int64_t>(i)]) - pivots_[i];
        sum += difference;
        square_sum += difference * difference;
      }
      sums_[i] += sum;
      square_sums_[i] += square_sum;
    }
  }
  DifferenceSums operator[](std::int64_t lane) const {
    return {sums_[static_cast<std::size_t>(lane)], square_sums_[static_cast<std::size_t>(lane)]};
  }

 private:
  alignas(64) std::array<double, ChannelLanes::most> pivots_, sums_{}, square_sums_{};
};

/// Over the pixels from x on. `sums` (C) are overwritten.
template <class T, class Pivot>
void sum_differences(const T* x, std::int64_t pixels, std::int64_t channels, const Pivot& pivot_of_channel, DifferenceSums* sums) {
  std::fill_n(sums, channels, DifferenceSums());
  ChannelLanes::for_each(channels, [&](const ChannelLanes& lanes) {
    LaneDifferences differences(lanes.of(pivot_of_channel));
    constexpr int steps = 4;  // at a time
    const std::int64_t step = lanes.step(), whole = pixels * channels - (steps - 1) * step - lanes.count;
    std::int64_t i = lanes.first;
    for (; i <= whole; i += steps * step) differences.add<steps>(x + i, step, lanes.count);
    lanes.for_each_step(i, pixels, [&](std::int64_t first, std::int64_t count) { differences.add<1>(x + first, step, count); });
    for (std::int64_t lane = 0; lane < lanes.count; ++lane) sums[lanes.channel(lane)] += differences[lane];
  });
}

/// Images with their channels last: each as it comes if it lies so, else through a copy in scratch memory.
class ChannelsLastCopies {
 public:
  /// What a copy takes of the memory.
  static std::size_t bytes(const TensorType& image, Layout layout) {
    return layout == Layout::channels_last ? 0 : (static_cast<std::size_t>(image.bytes()) + 63) / 64 * 64;
  }
  static std::size_t bytes(const TensorType& image, const std::vector<Layout>& layouts, std::size_t place) {
    return bytes(image, place < layouts.size() ? layouts[place] : Layout::contiguous);
  }

  explicit ChannelsLastCopies(std::byte* memory) : memory_(memory) {}

  template <class T>
  const T* read(const Tensor& image) {
    T* const to = write<T>(image);
    if (to == image.data<T>()) return to;
    for_each_sample(image, [&](const Planes& planes, std::int64_t begin) {
      transpose(image.data<T>() + begin, planes.pixels, planes.channels, planes.pixels, to + begin, planes.channels);
    });
    return to;
  }
  /// Where to write an image, which `finish` then brings where it belongs. Null if it is undefined.
  template <class T>
  T* write(const Tensor& image) {
    if (!image.defined() || image.is_contiguous(Layout::channels_last)) return data_or_null<T>(image);
    T* const copy = reinterpret_cast<T*>(memory_);
    memory_ += bytes({image.dtype(), image.shape()}, Layout::contiguous);
    return copy;
  }
  template <class T>
  static void finish(const Tensor& image, const T* written) {
    if (written == data_or_null<T>(image)) return;
    for_each_sample(image, [&](const Planes& planes, std::int64_t begin) {
      transpose(written + begin, planes.channels, planes.pixels, planes.channels, image.data<T>() + begin, planes.pixels);
    });
  }

 private:
  template <class Body>
  static void for_each_sample(const Tensor& image, const Body& body) {
    const Planes planes(image.shape());
    parallel_for(planes.samples, 1, [&](std::int64_t sample, std::int64_t) { body(planes, sample * planes.channels * planes.pixels); });
  }

  std::byte* memory_;
};

}  // namespace frit::ops
