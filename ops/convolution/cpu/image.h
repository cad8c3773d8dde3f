#pragma once

#include <algorithm>
#include <utility>

#include "frit/core/tensor.h"
#include "frit/ops/convolution/cpu/direction.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/cpu/work_split.h"

namespace frit::ops {

/// How an image lies. A part of a wider one's channels has a pitch: elements from a pixel to the next; 0 says that it is whole.
struct ImagePlace {
  Layout layout;
  std::int64_t pitch;

  ImagePlace(Layout of_whole = Layout::contiguous, std::int64_t of_part = 0) : layout(of_whole), pitch(of_part) {}  // NOLINT
  explicit ImagePlace(const Tensor& image) : ImagePlace(image.layout()) {
    if (const std::int64_t pixel = image.pixel_pitch(); pixel > image.dim(1)) layout = Layout::channels_last, pitch = pixel;
  }
};

/// An image tensor (N, C, spatial...), or a weight, in either layout, as kernels on the CPU address it: strides in elements.
struct ImageStrides {
  std::int64_t sample, channel;
  ImageAxes axis, size;

  ImageStrides(ImagePlace place, std::int64_t channels, const ImageAxes& image) : size(image) {
    channel = place.layout == Layout::channels_last || channels == 1 ? 1 : product(image);
    const std::int64_t pixel = place.pitch > 0 ? place.pitch : channel == 1 ? channels : 1;
    axis = {image[1] * image[2] * pixel, image[2] * pixel, pixel};
    sample = product(image) * (place.pitch > 0 ? place.pitch : channels);
  }
  bool channels_last() const { return channel == 1; }
  std::int64_t place(std::int64_t n, std::int64_t c, const ImageAxes& at) const {
    return n * sample + c * channel + at[0] * axis[0] + at[1] * axis[1] + at[2] * axis[2];
  }
};

template <class T>
struct Image {
  T* data;
  ImagePlace place = {};
};

template <class T>
Image<const T> read(const Tensor& tensor) {
  return {tensor.data<T>(), ImagePlace(tensor)};
}
template <class T>
Image<T> written(const Tensor& tensor) {
  return {tensor.data<T>(), ImagePlace(tensor)};
}

/// What the positions of a grid read of a source along each axis: of position j, elements j * step + low to j * step + low + size - 1.
struct Reach {
  ImageAxes step, low, size;

  explicit Reach(const Direction& d);
  /// Whether all that the grid's positions read lies in the source.
  bool inside(const Direction& d) const;
};

/// A part of a batch's grid of positions: whole rows of it, whole planes, whole samples, or a part of a row.
struct Box {
  std::int64_t sample, samples;
  ImageAxes begin, size;

  std::int64_t positions() const { return samples * product(size); }
};

/// The grid's positions over the whole batch in boxes, each a run of positions in their order.
class Boxes {
 public:
  Boxes(std::int64_t batch, const ImageAxes& grid, std::int64_t most_positions);

  std::int64_t count() const { return samples_.count * axes_[0].count * axes_[1].count * axes_[2].count; }
  Box operator[](std::int64_t index) const;
  /// The largest.
  Box largest() const { return {0, samples_.size, {}, {axes_[0].size, axes_[1].size, axes_[2].size}}; }

 private:
  EvenBlocks samples_;
  std::array<EvenBlocks, 3> axes_;
};

/// body(runs) for the elements of some channels at the places of a box of the image, as they lie in memory.
template <class Body>
void for_each_runs(const ImageStrides& image, const Box& box, std::int64_t channel, std::int64_t channels, const Body& body) {
  std::int64_t samples = box.samples, planes = box.size[0], rows = box.size[1], pixels = box.size[2];
  // Whole rows, planes and samples lie one after the other.
  if (pixels == image.size[2]) {
    pixels *= std::exchange(rows, 1);
    if (box.size[1] == image.size[1]) pixels *= std::exchange(planes, 1);
    if (box.size == image.size && image.channels_last()) pixels *= std::exchange(samples, 1);
  }
  const std::int64_t first = image.place(box.sample, channel, box.begin);
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t i = 0; i < planes; ++i) {
      const std::int64_t plane = first + n * image.sample + i * image.axis[0];
      if (image.channels_last() && channels == image.axis[2]) {  // all of them
        body(Runs{plane, rows, image.axis[1], pixels * channels});
        continue;
      }
      for (std::int64_t j = 0; j < rows; ++j) {
        const std::int64_t begin = plane + j * image.axis[1];
        body(image.channels_last() ? Runs{begin, pixels, image.axis[2], channels} : Runs{begin, channels, image.channel, pixels});
      }
    }
  }
}

/// body(offset) for each position of a box, with such strides of the samples and axes, of which a position takes some steps.
template <class Body>
void for_each_position(const Box& box, std::int64_t sample, const ImageAxes& step, const ImageAxes& axis, const Body& body) {
  for (std::int64_t n = 0; n < box.samples; ++n) {
    for (std::int64_t i = 0; i < box.size[0]; ++i) {
      for (std::int64_t j = 0; j < box.size[1]; ++j) {
        const std::int64_t row = n * sample + i * step[0] * axis[0] + j * step[1] * axis[1];
        for (std::int64_t k = 0; k < box.size[2]; ++k) body(row + k * step[2] * axis[2]);
      }
    }
  }
}

/// Writes `count` pixels, `stride` apart, to neighbours in a contiguous image.
template <class T>
void write_pixels(const T* from, std::int64_t stride, std::int64_t count, std::int64_t channels, T* to, std::int64_t channel_stride) {
  // A few channels at a time: lines of many, which may be a power of two apart, would drive each other out of the cache.
  constexpr std::int64_t some = simd::lanes<T>;
  for (std::int64_t c = 0; c < channels; c += some) {
    transpose(from + c, stride, count, std::min(some, channels - c), to + c * channel_stride, channel_stride);
  }
}

/// The elements of a source, of some channels, that the positions of a box read, with zeros outside the source: where they lie.
struct Window {
  Reach reach;
  std::int64_t channels;
  std::int64_t sample;  ///< strides, as in ImageStrides
  ImageAxes axis;
  bool copied;  ///< from the source, as the elements do not all lie in it, or not channels-last

  /// For boxes no larger than `box`. `copied_pixel`, unless 0: it is copied even if it need not be, to pixels that lie so many elements
  /// apart.
  Window(const Direction& d, const ImageStrides& source, const Box& box, std::int64_t copied_pixel = 0);

  std::int64_t elements(const Box& box) const { return box.samples * sample; }
  /// Elements along an axis.
  std::int64_t size(const Box& box, std::size_t i) const { return (box.size[i] - 1) * reach.step[i] + reach.size[i]; }
  std::int64_t rows(const Box& box) const { return box.samples * size(box, 0) * size(box, 1); }
  /// Where a box's first position has its first element, in a source that is not copied.
  std::int64_t first(const Box& box) const;
  /// body(offset) for each position of a box, from that of the first on.
  template <class Body>
  void for_each_position(const Box& box, const Body& body) const {
    ops::for_each_position(box, sample, reach.step, axis, body);
  }
};

/// Copies rows [begin, end) of a box's elements, channels [channel, channel + window.channels) of the source. `to` is the window.
template <class T>
void copy_window(const Window& window, const Box& box, const ImageStrides& strides, const T* source, std::int64_t channel,
                 std::int64_t begin, std::int64_t end, T* to);

extern template void copy_window(const Window&, const Box&, const ImageStrides&, const float*, std::int64_t, std::int64_t, std::int64_t,
                                 float*);
extern template void copy_window(const Window&, const Box&, const ImageStrides&, const double*, std::int64_t, std::int64_t, std::int64_t,
                                 double*);
extern template void copy_window(const Window&, const Box&, const ImageStrides&, const std::uint16_t*, std::int64_t, std::int64_t,
                                 std::int64_t, std::uint16_t*);

}  // namespace frit::ops
