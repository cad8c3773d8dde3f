#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "frit/core/tensor.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"
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
  template <class Number>
  std::array<double, most> of(const Number& number_of_channel) const {
    std::array<double, most> result{};
    for (std::int64_t i = 0; i < count; ++i) result[static_cast<std::size_t>(i)] = static_cast<double>(number_of_channel(channel(i)));
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
  Moments moments(double pivot, std::int64_t count) const {
    if (count == 0) return {};
    const double n = static_cast<double>(count), mean_difference = sum / n;
    const double variance = square_sum / n - mean_difference * mean_difference;
    return {count, pivot + mean_difference, variance < 0 ? 0 : variance};
  }
};

/// The pixels whose sums are made together.
inline EvenBlocks channel_sum_blocks(const Planes& planes) {
  constexpr std::int64_t elements = 16384;
  return {planes.pixels, std::max<std::int64_t>(16, elements / std::max<std::int64_t>(1, planes.channels))};
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

/// Whether a tensor lies as a kernel goes through it, and the bytes of the copy that it needs else.
inline std::size_t channels_last_copy_bytes(const InferContext& call, std::size_t input) {
  if (call.input_layout(input) == Layout::channels_last) return 0;
  return (static_cast<std::size_t>(call.inputs[input].bytes()) + 63) / 64 * 64;
}

/// An image with its channels last: as it comes, or a copy in `memory`.
template <class T>
const T* with_channels_last(const Tensor& image, std::byte* memory) {
  if (image.is_contiguous(Layout::channels_last)) return image.data<T>();
  const Planes planes(image.shape());
  T* const copy = reinterpret_cast<T*>(memory);
  parallel_for(planes.samples, 1, [&](std::int64_t sample, std::int64_t) {
    const std::int64_t begin = sample * planes.channels * planes.pixels;
    transpose(image.data<T>() + begin, planes.pixels, planes.channels, planes.pixels, copy + begin, planes.channels);
  });
  return copy;
}

/// Where to write an image so that its channels are last: itself, or a copy in `memory`, which `finish_channels_last` brings to it.
template <class T>
T* to_channels_last(const Tensor& image, std::byte* memory) {
  if (!image.defined() || image.is_contiguous(Layout::channels_last)) return data_or_null<T>(image);
  return reinterpret_cast<T*>(memory);
}
template <class T>
void finish_channels_last(const Tensor& image, const T* written) {
  if (!image.defined() || written == image.data<T>()) return;
  const Planes planes(image.shape());
  parallel_for(planes.samples, 1, [&](std::int64_t sample, std::int64_t) {
    const std::int64_t begin = sample * planes.channels * planes.pixels;
    transpose(written + begin, planes.channels, planes.pixels, planes.channels, image.data<T>() + begin, planes.pixels);
  });
}

}  // namespace frit::ops
