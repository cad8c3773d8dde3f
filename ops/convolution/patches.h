#pragma once

#include <algorithm>
#include <cstring>

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/cpu/simd.h"
#include "frit/ops/cpu/work_split.h"

namespace frit::ops {

/// What position j of a grid reads along one axis: source element j * step + offset + t * tap_offset for tap t, which is the kernel's
/// element first_tap + t * tap_step. Outside the source there are zeros.
struct AxisTaps {
  std::int64_t count;
  std::int64_t step, offset, tap_offset;
  std::int64_t first_tap, tap_step;
};

/// The patches of a source image (channels, source...) at the positions of a grid, as a matrix: rows (channel, taps...), columns positions.
struct Patches {
  ImageAxes source, grid;
  std::array<AxisTaps, 3> taps;

  std::int64_t taps_count() const { return taps[0].count * taps[1].count * taps[2].count; }
  ImageAxes tap(std::int64_t index) const {
    return {index / (taps[1].count * taps[2].count), index / taps[2].count % taps[1].count, index % taps[2].count};
  }
};

/// What a convolution's outputs read of its input.
inline Patches input_patches(const ConvolutionGeometry& g) {
  Patches patches{g.input, g.output, {}};
  for (std::size_t i = 0; i < 3; ++i) patches.taps[i] = {g.kernel[i], g.stride[i], -g.padding[i], g.dilation[i], 0, 1};
  return patches;
}

/// Visits positions [begin, end) of a grid in row-major order, a run along the last axis at a time: body(d, h, w, count, done), where the
/// run starts at (d, h, w).
template <class Body>
void for_each_run(const ImageAxes& grid, std::int64_t begin, std::int64_t end, const Body& body) {
  std::int64_t w = begin % grid[2], h = begin / grid[2] % grid[1], d = begin / grid[2] / grid[1];
  for (std::int64_t position = begin; position < end;) {
    const std::int64_t count = std::min(grid[2] - w, end - position);
    body(d, h, w, count, position - begin);
    position += count;
    w = 0;
    if (++h == grid[1]) {
      h = 0;
      ++d;
    }
  }
}

/// The first position j that reads source element 0 or a later one: j * step + offset >= 0.
inline std::int64_t first_inside(std::int64_t offset, std::int64_t step) { return offset >= 0 ? 0 : (-offset + step - 1) / step; }

template <int bytes>
[[gnu::always_inline]] inline void copy_ends(const std::byte* from, std::int64_t size, std::byte* to) {
  std::memcpy(to, from, bytes);
  std::memcpy(to + size - bytes, from + size - bytes, bytes);
}

/// Most runs are too short for a call of memcpy to pay; two parts that may overlap do it.
template <class T>
[[gnu::always_inline]] inline void copy_run(const T* source, std::int64_t count, T* destination) {
  const auto* from = reinterpret_cast<const std::byte*>(source);
  auto* to = reinterpret_cast<std::byte*>(destination);
  const std::int64_t size = count * static_cast<std::int64_t>(sizeof(T));
  if (size >= 64) {
    for (std::int64_t i = 64; i < size; i += 64) std::memcpy(to + i - 64, from + i - 64, 64);
    std::memcpy(to + size - 64, from + size - 64, 64);
  } else if (size >= 32) {
    copy_ends<32>(from, size, to);
  } else if (size >= 16) {
    copy_ends<16>(from, size, to);
  } else {
    for (std::int64_t i = 0; i < count; ++i) destination[i] = source[i];
  }
}

/// Every step-th element.
template <class T>
void copy_every(const T* from, std::int64_t step, std::int64_t count, T* to) {
  constexpr std::int64_t n = simd::lanes<T>;
  if (step == 2 && count >= n) {
    for (std::int64_t i = 0; i < count; i += n) {
      const std::int64_t place = std::min(i, count - n);
      simd::store(to + place, simd::load_every_second(from + 2 * place));
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, from += step) to[i] = *from;
}

/// One row of the matrix: positions [begin, end) of the tap (td, th, tw). `contiguous`: the step of the last axis is 1.
template <bool contiguous, class T>
void copy_patch_row(const Patches& p, const T* channel, const ImageAxes& tap, std::int64_t begin, std::int64_t end, T* to) {
  ImageAxes offset;
  for (std::size_t i = 0; i < 3; ++i) offset[i] = p.taps[i].offset + tap[i] * p.taps[i].tap_offset;
  const std::int64_t step = contiguous ? 1 : p.taps[2].step;
  const std::int64_t first = first_inside(offset[2], step), last = first_inside(offset[2] - p.source[2], step);
  for_each_run(p.grid, begin, end, [&](std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t count, std::int64_t done) {
    T* run = to + done;
    const std::int64_t depth = d * p.taps[0].step + offset[0], height = h * p.taps[1].step + offset[1];
    if (depth < 0 || depth >= p.source[0] || height < 0 || height >= p.source[1]) {
      std::fill_n(run, count, T(0));
      return;
    }
    const std::int64_t inside = std::clamp(first - w, std::int64_t{0}, count), outside = std::clamp(last - w, inside, count);
    for (std::int64_t i = 0; i < inside; ++i) run[i] = T(0);
    for (std::int64_t i = outside; i < count; ++i) run[i] = T(0);
    if (inside == outside) return;
    const T* from = channel + (depth * p.source[1] + height) * p.source[2] + (w + inside) * step + offset[2];
    if (contiguous) {
      copy_run(from, outside - inside, run + inside);
    } else {
      copy_every(from, step, outside - inside, run + inside);
    }
  });
}

/// Rows [row_begin, row_end) and columns [begin, end) of the patch matrix of `image` to rows `stride` elements apart.
template <class T>
void copy_patches(const Patches& p, const T* image, std::int64_t row_begin, std::int64_t row_end, std::int64_t begin, std::int64_t end,
                  T* to, std::int64_t stride) {
  const std::int64_t taps = p.taps_count(), plane = product(p.source);
  const auto copy_row = p.taps[2].step == 1 ? copy_patch_row<true, T> : copy_patch_row<false, T>;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    copy_row(p, image + row / taps * plane, p.tap(row % taps), begin, end, to + (row - row_begin) * stride);
  }
}

/// The columns of a patch matrix over the whole batch, in blocks: parts of a sample, or several whole samples where these are small.
struct PositionBlocks {
  EvenBlocks samples, positions;

  PositionBlocks() = default;
  PositionBlocks(std::int64_t batch, std::int64_t positions_of_sample, std::int64_t most, std::int64_t multiple)
      : samples(batch, std::max<std::int64_t>(1, std::min(few, most) / std::max<std::int64_t>(1, positions_of_sample))),
        positions(positions_of_sample, most, multiple) {}

  std::int64_t count() const { return samples.count * positions.count; }
  std::int64_t columns() const { return samples.size * positions.size; }

  struct Block {
    std::int64_t sample, samples, begin, end;

    std::int64_t positions() const { return end - begin; }
    std::int64_t columns() const { return samples * positions(); }
  };
  Block operator[](std::int64_t block) const {
    const std::int64_t part = block % positions.count, begin = positions.begin(part);
    const std::int64_t sample_block = block / positions.count;
    return {samples.begin(sample_block), samples.length_of(sample_block), begin, begin + positions.length_of(part)};
  }

 private:
  static constexpr std::int64_t few = 128;
};

}  // namespace frit::ops
