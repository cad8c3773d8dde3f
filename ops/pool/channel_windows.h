#pragma once

#include <span>
#include <vector>

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/converted_vectors.h"
#include "frit/ops/pool/pool_geometry.h"

namespace frit::ops {

// Pooling of images that lie channels-last, on the CPU: what a pixel of the result is made of is found once for all its channels, a few
// vectors of which stay in registers while that is taken in.

/// For each place along an axis of the result those along the same axis that it reads, in order.
class AxisReads {
 public:
  /// Windows read their elements.
  static AxisReads elements(const PoolGeometry& g, std::size_t axis) {
    AxisReads reads;
    for (std::int64_t o = 0; o < g.output[axis]; ++o) {
      const KernelRange range = kernel_range(g, axis, o, o);
      for (std::int64_t k = range.begin; k < range.end; ++k) reads.places_.push_back(g.window_begin(axis, o) + k * g.dilation[axis]);
      reads.ends_.push_back(reads.places_.size());
    }
    return reads;
  }
  /// Elements read the windows that they are in.
  static AxisReads windows(const PoolGeometry& g, std::size_t axis) {
    const AxisReads elements = AxisReads::elements(g, axis);
    AxisReads reads;
    reads.places_.resize(elements.places_.size());
    reads.ends_.resize(static_cast<std::size_t>(g.image[axis]) + 2);  // each place's begin first, two further on, as those before it end
    for (const std::int64_t place : elements.places_) ++reads.ends_[static_cast<std::size_t>(place) + 2];
    for (std::size_t i = 1; i < reads.ends_.size(); ++i) reads.ends_[i] += reads.ends_[i - 1];
    for (std::int64_t o = 0; o < g.output[axis]; ++o) {
      for (const std::int64_t place : elements[o]) reads.places_[reads.ends_[static_cast<std::size_t>(place) + 1]++] = o;
    }
    return reads;
  }

  std::span<const std::int64_t> operator[](std::int64_t place) const {
    const std::size_t begin = ends_[static_cast<std::size_t>(place)], end = ends_[static_cast<std::size_t>(place) + 1];
    return std::span(places_).subspan(begin, end - begin);
  }

 private:
  std::vector<std::int64_t> places_;
  std::vector<std::size_t> ends_ = {0};
};

/// A single pixel, or channel, lies either way.
inline bool lie_channels_last(const KernelContext& call) {
  const auto last = [](const Tensor& image) { return image.defined() && image.layout() == Layout::channels_last; };
  return std::any_of(call.inputs.begin(), call.inputs.end(), last) || std::any_of(call.outputs.begin(), call.outputs.end(), last);
}

/// A pixel of the result as a kernel sees it.
struct GatheredPixel {
  std::int64_t place;                    ///< in its sample
  std::int64_t to, from;                 ///< the offsets of its first channel, and of the first pixel of the sample that it reads
  std::span<const std::int64_t> places;  ///< what it reads there
};

/// The pixels of a pooling call's result, and what they read.
class ChannelGather {
 public:
  /// `backward`: elements read windows.
  ChannelGather(const PoolGeometry& g, std::int64_t channels, bool backward)
      : to_(backward ? g.image : g.output), from_(backward ? g.output : g.image), channels_(channels), samples_(g.planes / channels) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      reads_[axis] = backward ? AxisReads::windows(g, axis) : AxisReads::elements(g, axis);
    }
    strips_ = (to_[2] + strip - 1) / strip;
    const std::int64_t rows = samples_ * to_[0] * to_[1] * strips_;
    group_ = rows < few_rows ? std::min<std::int64_t>(channels, 64) : channels;
    groups_ = (channels + group_ - 1) / group_;
    grain_ = std::max<std::int64_t>(1, row_grain(g) * g.output[0] * g.output[1] / (to_[0] * to_[1] * group_));
  }

  /// body.template operator()<V, vectors>(pixel, channel) for so many of all pixels' channels from `channel` on, where V is a vector of
  /// Ts, or a T. Some may come twice.
  template <class T, class Body>
  void for_each(const Body& body) const {
    parallel_for(samples_ * to_[0] * to_[1] * strips_ * groups_, grain_, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> rows, places;
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t group = item % groups_, first_column = item / groups_ % strips_ * strip, row = item / groups_ / strips_;
        find_rows(row, rows);
        const std::int64_t sample = row / (to_[0] * to_[1]), in_sample = row % (to_[0] * to_[1]) * to_[2];
        for (std::int64_t column = first_column; column < std::min(first_column + strip, to_[2]); ++column) {
          const std::span<const std::int64_t> columns = reads_[2][column];
          places.resize(rows.size() * columns.size());
          std::int64_t* next = places.data();
          for (const std::int64_t from_row : rows) {
            for (const std::int64_t from_column : columns) *next++ = from_row + from_column;
          }
          const GatheredPixel pixel{in_sample + column, (row * to_[2] + column) * channels_,
                                    sample * from_[0] * from_[1] * from_[2] * channels_, places};
          const std::int64_t channel = group * group_;
          for_each_vectors<T>(channel, std::min(channel + group_, channels_),
                              [&]<class V, int vectors>(std::int64_t c) { body.template operator()<V, vectors>(pixel, c); });
        }
      }
    });
  }

 private:
  static constexpr std::int64_t strip = 64;      // pixels of a row that are one item of work
  static constexpr std::int64_t few_rows = 128;  // so few that their channels are divided, too

  /// Where the rows begin that a row of the result reads.
  void find_rows(std::int64_t row, std::vector<std::int64_t>& rows) const {
    rows.clear();
    for (const std::int64_t d : reads_[0][row / to_[1] % to_[0]]) {
      for (const std::int64_t h : reads_[1][row % to_[1]]) rows.push_back((d * from_[1] + h) * from_[2]);
    }
  }

  template <class T, class Body>
  static void for_each_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
    constexpr std::int64_t lanes = simd::lanes<T>;
    std::int64_t c = begin;
    for (; c + 4 * lanes <= end; c += 4 * lanes) body.template operator()<simd::Vector<T>, 4>(c);
    const auto cover = [&]<class V>(std::type_identity<V>) {
      constexpr std::int64_t n = sizeof(V) / sizeof(T);
      for (; c + n <= end; c += n) body.template operator()<V, 1>(c);
      if (c < end && end - begin >= n) body.template operator()<V, 1>(end - n), c = end;
    };
    cover(std::type_identity<simd::Vector<T>>());
    cover(std::type_identity<simd::NarrowVector<T>>());
    for (; c < end; ++c) body.template operator()<T, 1>(c);
  }

  PoolGeometry::Axes to_, from_;
  std::int64_t channels_, samples_, strips_ = 1, group_ = 1, groups_ = 1, grain_ = 1;
  std::array<AxisReads, 3> reads_;
};

}  // namespace frit::ops
