#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "frit/ops/convolution/cpu/small_groups_cpu.h"
#include "frit/ops/cpu/simd.h"
#include "frit/ops/operator/scratch_parts.h"

// What convolutions of small groups and their weights' gradients have in common.

namespace frit::ops::small_groups {

using simd::lanes;
using simd::Vector;

/// A position's row of taps: where the source's row and the weights of its first tap begin.
template <class T>
struct TapRow {
  const T* source;
  std::int64_t weight;  ///< where, among the packed ones
};

/// Positions of an output row that read along the last axis by the same taps.
struct RowTaps {
  AxisTaps axis;
  std::int64_t positions, source_size;

  std::int64_t source(std::int64_t position, std::int64_t tap) const { return position * axis.step + axis.offset + tap * axis.tap_offset; }
  bool inside(std::int64_t position, std::int64_t tap) const {
    const std::int64_t place = source(position, tap);
    return place >= 0 && place < source_size;
  }

  /// [first, last) of so many, without those at the ends for which `is` does not hold.
  template <class Condition>
  static std::pair<std::int64_t, std::int64_t> between(std::int64_t count, const Condition& is) {
    std::int64_t first = 0, last = count;
    while (first < last && !is(first)) ++first;
    while (last > first && !is(last - 1)) --last;
    return {first, last};
  }
  /// The taps of a position that lie in the source.
  auto taps_inside(std::int64_t position) const {
    return between(axis.count, [&](std::int64_t tap) { return inside(position, tap); });
  }
  /// The positions of which a tap lies in the source.
  auto positions_inside(std::int64_t tap) const {
    return between(positions, [&](std::int64_t position) { return inside(position, tap); });
  }
  /// The positions whose taps all lie in the source.
  auto whole() const {
    return between(positions,
                   [&](std::int64_t position) { return axis.count == 0 || (inside(position, 0) && inside(position, axis.count - 1)); });
  }
};

/// The vectors of a block of channels: `count` whole ones or, where it is 0, the first `channels` elements of one.
template <class T, int count>
struct ChannelBlock {
  static constexpr int vectors = std::max(count, 1);
  std::int64_t channels;

  Vector<T> load(const T* from) const {
    if constexpr (count > 0) {
      return simd::load(from);
    } else {
      return simd::load_first(from, channels);
    }
  }
  void store(T* to, Vector<T> value) const {
    if constexpr (count > 0) {
      simd::store(to, value);
    } else {
      simd::store_first(to, value, channels);
    }
  }
};

/// What the lanes of a block of the output's channels read of the source: each of its group's channels, one after the other. A depthwise
/// convolution has `inputs` 0: a lane reads its own. Groups have as many channels of either kind, or one of the source; blocks begin with
/// a group.
template <class T, int inputs>
class SourceLanes {
 public:
  static constexpr int count = std::max(inputs, 1);

  explicit SourceLanes(const Direction& d) : shift_(inputs == 1 ? std::countr_zero(static_cast<std::uint64_t>(d.rows)) : 0) {
    for (int i = 0; i < count; ++i) {
      for (int lane = 0; lane < lanes<T>; ++lane) places_[i][lane] = inputs == 1 ? lane >> shift_ : lane / count * count + i;
    }
  }

  /// Of the source's channels, that of a block's first.
  std::int64_t first(std::int64_t channel) const { return channel >> shift_; }
  /// Channel i of each lane's group; `from` is that of the block's first.
  template <class Block>
  Vector<T> load(const Block& block, const T* from, int i) const {
    if constexpr (inputs == 0) {
      return block.load(from);
    } else if constexpr (inputs == 1) {
      return simd::shuffle<T>(simd::load_first(from, block.channels >> shift_), places_[i]);
    } else {
      return simd::shuffle<T>(block.load(from), places_[i]);
    }
  }

 private:
  int shift_;  ///< of a group's outputs, a power of two as they divide a vector's lanes
  Vector<simd::LaneNumber<T>> places_[count] = {};
};

/// Calls body(a constant: inputs, see SourceLanes) for the groups of a direction.
template <class Body>
void dispatch_inputs(const Direction& d, const Body& body) {
  if (is_depthwise(d.geometry)) return body(std::integral_constant<int, 0>());
  if (d.channels == 1) return body(std::integral_constant<int, 1>());
  if (d.channels == 2) return body(std::integral_constant<int, 2>());
  if (d.channels == 4) return body(std::integral_constant<int, 4>());
  FRIT_CHECK(d.channels == 8);
  body(std::integral_constant<int, 8>());
}

inline ImageAxes tap_at(const ImageAxes& kernel, std::int64_t tap) {
  return {tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1], tap % kernel[2]};
}

/// An image tensor (N, C, ...).
template <class T>
Tensor tensor_of(const T* data, Layout layout, std::int64_t samples, std::int64_t channels, const ImageAxes& size) {
  return Tensor::over(const_cast<T*>(data), {samples, channels, size[0], size[1], size[2]}, dtype_of<T>(), Device::cpu(), nullptr, layout);
}

inline bool lies_channels_last(ImagePlace place, std::int64_t channels, const ImageAxes& size) {
  return ImageStrides(place, channels, size).channels_last();
}

/// An image in channels-last layout: itself, or a copy in `memory`.
template <class T>
const T* in_channels_last(Image<const T> image, std::int64_t samples, std::int64_t channels, const ImageAxes& size, T* memory) {
  if (lies_channels_last(image.place, channels, size)) return image.data;
  copy(tensor_of(memory, Layout::channels_last, samples, channels, size),
       tensor_of(image.data, image.place.layout, samples, channels, size));
  return memory;
}

/// The taps of a kernel's rows that lie in the source, for one output row.
template <class T>
std::vector<TapRow<T>> rows_inside(const Taps& taps, const Direction& d, const ImageAxes& position, const T* source) {
  const std::int64_t channels = d.geometry.groups * d.channels, tap_weights = d.geometry.groups * d.rows * d.channels;
  std::vector<TapRow<T>> rows;
  for (std::int64_t i = 0; i < taps[0].count; ++i) {
    const std::int64_t plane = position[0] * taps[0].step + taps[0].offset + i * taps[0].tap_offset;
    if (plane < 0 || plane >= d.source[0]) continue;
    for (std::int64_t j = 0; j < taps[1].count; ++j) {
      const std::int64_t line = position[1] * taps[1].step + taps[1].offset + j * taps[1].tap_offset;
      if (line < 0 || line >= d.source[1]) continue;
      const std::int64_t kernel_row =
          (taps[0].first_tap + i * taps[0].tap_step) * d.geometry.kernel[1] + taps[1].first_tap + j * taps[1].tap_step;
      rows.push_back({source + (plane * d.source[1] + line) * d.source[2] * channels,
                      (kernel_row * d.geometry.kernel[2] + taps[2].first_tap) * tap_weights});
    }
  }
  return rows;
}

/// The scratch memory that all threads share: copies of images that do not lie channels-last, and sums.
struct Scratch {
  ScratchParts all;
  std::size_t source, output, weights;

  /// `sets` of weights.
  Scratch(const Direction& d, ImageLayouts layouts, std::int64_t sets, std::size_t element_size) {
    const auto copied = [&](ImagePlace place, std::int64_t channels, const ImageAxes& size) {
      return lies_channels_last(place, channels, size) ? 0 : d.geometry.batch * channels * product(size);
    };
    source = all.add(copied(layouts.source, d.geometry.groups * d.channels, d.source), element_size);
    output = all.add(copied(layouts.output, d.geometry.groups * d.rows, d.output), element_size);
    weights = all.add(sets * packed_small_groups_elements(d), element_size);
  }
};

}  // namespace frit::ops::small_groups
