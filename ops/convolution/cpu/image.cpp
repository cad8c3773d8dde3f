#include "frit/ops/convolution/cpu/image.h"

#include <algorithm>

namespace frit::ops {
namespace {

/// Copies `count` pixels of `channels` channels, and lays the channels side by side.
template <class T>
void copy_pixels(const T* from, std::int64_t pixel_stride, std::int64_t channel_stride, std::int64_t count, std::int64_t channels, T* to,
                 std::int64_t to_stride) {
  constexpr std::int64_t lanes = simd::lanes<T>;
  if (channel_stride == 1 && pixel_stride == channels && to_stride == channels) {
    std::copy_n(from, count * channels, to);
  } else if (channel_stride == 1) {
    // Whole vectors: what they hold of more channels, the next pixels overwrite.
    const std::int64_t more = (lanes - channels % lanes) % lanes, last = std::min(count, (more + channels - 1) / channels);
    for (std::int64_t i = 0; i < count - last; ++i) {
      __builtin_prefetch(from + (i + 8) * pixel_stride);
      for (std::int64_t c = 0; c < channels; c += lanes) simd::store(to + i * to_stride + c, simd::load(from + i * pixel_stride + c));
    }
    for (std::int64_t i = count - last; i < count; ++i) std::copy_n(from + i * pixel_stride, channels, to + i * to_stride);
  } else {  // contiguous, with pixels side by side
    transpose(from, channel_stride, channels, count, to, to_stride);
  }
}

}  // namespace

Reach::Reach(const Direction& d) {
  for (std::size_t i = 0; i < 3; ++i) {
    std::int64_t least = INT64_MAX, most = INT64_MIN;
    step[i] = d.back ? 1 : d.geometry.stride[i];
    for_each_phase(d, [&](const ImageAxes&, const Taps& taps) {
      const AxisTaps& t = taps[i];
      if (t.count == 0) return;
      const std::int64_t last = t.offset + (t.count - 1) * t.tap_offset;
      least = std::min({least, t.offset, last});
      most = std::max({most, t.offset, last});
    });
    low[i] = least > most ? 0 : least;
    size[i] = least > most ? 1 : most - least + 1;
  }
}

bool Reach::inside(const Direction& d) const {
  bool result = true;
  for (std::size_t i = 0; i < 3; ++i) result = result && low[i] >= 0 && (d.grid[i] - 1) * step[i] + low[i] + size[i] <= d.source[i];
  return result;
}

Boxes::Boxes(std::int64_t batch, const ImageAxes& grid, std::int64_t most)
    : samples_(batch, std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, product(grid)))) {
  std::int64_t inner = 1;  // positions of one step along the axis
  for (std::size_t i = 3; i-- > 0;) {
    axes_[i] = EvenBlocks(grid[i], std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, inner)));
    inner *= grid[i];
  }
}

Box Boxes::operator[](std::int64_t index) const {
  Box box;
  for (std::size_t i = 3; i-- > 0;) {
    const std::int64_t block = index % axes_[i].count;
    index /= axes_[i].count;
    box.begin[i] = axes_[i].begin(block);
    box.size[i] = axes_[i].length_of(block);
  }
  box.sample = samples_.begin(index);
  box.samples = samples_.length_of(index);
  return box;
}

Window::Window(const Direction& d, const ImageStrides& source, const Box& box, std::int64_t copied_pixel)
    : reach(d), channels(d.channels), copied(copied_pixel > 0 || !source.channels_last() || !reach.inside(d)) {
  sample = source.sample;
  axis = source.axis;
  if (!copied) return;
  sample = copied_pixel > 0 ? copied_pixel : channels;
  for (std::size_t i = 3; i-- > 0;) {
    axis[i] = sample;
    sample *= size(box, i);
  }
}

std::int64_t Window::first(const Box& box) const {
  std::int64_t place = box.sample * sample;
  for (std::size_t i = 0; i < 3; ++i) place += (box.begin[i] * reach.step[i] + reach.low[i]) * axis[i];
  return place;
}

template <class T>
void copy_window(const Window& window, const Box& box, const ImageStrides& strides, const T* source, std::int64_t channel,
                 std::int64_t begin, std::int64_t end, T* to) {
  const std::int64_t planes = window.size(box, 0), lines = window.size(box, 1), width = window.size(box, 2);
  ImageAxes low;
  for (std::size_t i = 0; i < 3; ++i) low[i] = box.begin[i] * window.reach.step[i] + window.reach.low[i];
  const std::int64_t left = std::clamp<std::int64_t>(-low[2], 0, width);
  const std::int64_t inside = std::clamp<std::int64_t>(strides.size[2] - low[2], left, width) - left;
  const std::int64_t pixel = window.axis[2];
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t n = index / lines / planes, i = index / lines % planes, j = index % lines, plane = low[0] + i, line = low[1] + j;
    T* const row = to + n * window.sample + i * window.axis[0] + j * window.axis[1];
    const bool outside = plane < 0 || plane >= strides.size[0] || line < 0 || line >= strides.size[1] || inside == 0;
    std::fill_n(row, (outside ? width : left) * pixel, T(0));
    if (outside) continue;
    const T* const from = source + (box.sample + n) * strides.sample + channel * strides.channel + plane * strides.axis[0] +
                          line * strides.axis[1] + (low[2] + left) * strides.axis[2];
    copy_pixels(from, strides.axis[2], strides.channel, inside, window.channels, row + left * pixel, pixel);
    std::fill_n(row + (left + inside) * pixel, (width - left - inside) * pixel, T(0));
  }
}

template void copy_window(const Window&, const Box&, const ImageStrides&, const float*, std::int64_t, std::int64_t, std::int64_t, float*);
template void copy_window(const Window&, const Box&, const ImageStrides&, const double*, std::int64_t, std::int64_t, std::int64_t, double*);
template void copy_window(const Window&, const Box&, const ImageStrides&, const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t,
                          std::uint16_t*);

}  // namespace frit::ops
