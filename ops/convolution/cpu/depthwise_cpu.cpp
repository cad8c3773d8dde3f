#include "frit/ops/convolution/cpu/depthwise_cpu.h"

#include <algorithm>

#include "frit/ops/cpu/prefetch.h"
#include "frit/ops/cpu/simd.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

/// Positions that are computed at a time.
constexpr int most_positions = 6;
/// Planes of a source of so many bytes come from a cache that cores share, or from memory.
constexpr std::int64_t least_prefetched_bytes = 512 * 1024;
/// The rows of a gradient are cut into no more slices than this, whose sums are added in their order.
constexpr std::int64_t most_slices = 32;

/// A position's row of taps: where the source's row begins, and the weights of the row's first tap.
template <class T>
struct TapRow {
  const T* source;
  std::int64_t weight;
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
  bool all_inside(std::int64_t position) const { return inside(position, 0) && inside(position, axis.count - 1); }
  /// The taps of a position that lie in the source: [first, last).
  std::pair<std::int64_t, std::int64_t> taps_inside(std::int64_t position) const {
    std::int64_t first = 0, last = axis.count;
    while (first < last && !inside(position, first)) ++first;
    while (last > first && !inside(position, last - 1)) --last;
    return {first, last};
  }
  /// The positions of which a tap lies in the source.
  std::pair<std::int64_t, std::int64_t> positions_inside(std::int64_t tap) const {
    std::int64_t first = 0, last = positions;
    while (first < last && !inside(first, tap)) ++first;
    while (last > first && !inside(last - 1, tap)) --last;
    return {first, last};
  }
  /// The positions whose taps all lie in the source: [first, last).
  std::pair<std::int64_t, std::int64_t> whole() const {
    if (axis.count == 0) return {0, positions};
    std::int64_t first = 0, last = positions;
    while (first < positions && !all_inside(first)) ++first;
    while (last > first && !all_inside(last - 1)) --last;
    return {first, last};
  }
};

/// A row of the output, of one phase.
template <class T>
struct OutputRow {
  std::span<const TapRow<T>> rows;
  RowTaps taps;
  std::int64_t channels;
  const T *weight, *bias;
  T* output;
  std::int64_t step;        ///< between positions of the output
  T low, high;              ///< its bounds
  std::span<const T> next;  ///< of the source, what the next row reads for the first time
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

/// `count` positions from `position` on, for the block of channels from `channel` on, whose taps are [first_tap, last_tap).
template <int count, class T, class Block>
void convolve_positions(const OutputRow<T>& out, std::int64_t first_tap, std::int64_t last_tap, std::int64_t position,
                        std::int64_t channel, Block block) {
  constexpr int vectors = Block::vectors;
  Vector<T> sums[count][vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const Vector<T> start = out.bias == nullptr ? Vector<T>{} : block.load(out.bias + channel + v * lanes<T>);
#pragma GCC unroll 8
    for (int p = 0; p < count; ++p) sums[p][v] = start;
  }
  const std::int64_t step = out.taps.axis.step * out.channels;
  for (const TapRow<T>& row : out.rows) {
    for (std::int64_t tap = first_tap; tap < last_tap; ++tap) {
      const T* const source = row.source + out.taps.source(position, tap) * out.channels + channel;
      const T* const weight = out.weight + row.weight + tap * out.taps.axis.tap_step * out.channels + channel;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const Vector<T> factor = block.load(weight + v * lanes<T>);
#pragma GCC unroll 8
        for (int p = 0; p < count; ++p) sums[p][v] = simd::multiply_add(block.load(source + p * step + v * lanes<T>), factor, sums[p][v]);
      }
    }
  }
  const Vector<T> low = simd::broadcast(out.low), high = simd::broadcast(out.high);
#pragma GCC unroll 8
  for (int p = 0; p < count; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      block.store(out.output + (position + p) * out.step + channel + v * lanes<T>, simd::clamp<T>(sums[p][v], low, high));
    }
  }
}

/// Calls body(channel, a ChannelBlock) for blocks of channels that cover all, of which the last may lie over the one before it.
template <class T, class Body>
void for_each_channel_block(std::int64_t channels, const Body& body) {
  constexpr std::int64_t n = lanes<T>;
  if (channels < n) return body(0, ChannelBlock<T, 0>{channels});
  std::int64_t channel = 0;
  for (; channel + 2 * n <= channels; channel += 2 * n) body(channel, ChannelBlock<T, 2>{2 * n});
  for (; channel + n <= channels; channel += n) body(channel, ChannelBlock<T, 1>{n});
  if (channel < channels) body(channels - n, ChannelBlock<T, 1>{n});
}

template <class T>
void convolve_row(const OutputRow<T>& out) {
  const std::int64_t positions = out.taps.positions, count = out.taps.axis.count;
  const auto [first, last] = out.taps.whole();
  const std::int64_t next = std::ssize(out.next) / out.channels;  // of each channel
  for_each_channel_block<T>(out.channels, [&, first = first, last = last](std::int64_t channel, auto block) {
    std::int64_t position = 0;
    const auto at_edge = [&](std::int64_t end) {
      for (; position < end; ++position) {
        const auto [first_tap, last_tap] = out.taps.taps_inside(position);
        convolve_positions<1>(out, first_tap, last_tap, position, channel, block);
      }
    };
    const auto whole = [&](auto at_a_time) {
      for (; position + at_a_time <= last; position += at_a_time) {
        convolve_positions<at_a_time>(out, 0, count, position, channel, block);
      }
    };
    at_edge(first);
    whole(std::integral_constant<int, most_positions>());
    whole(std::integral_constant<int, 2>());
    whole(std::integral_constant<int, 1>());
    at_edge(positions);
    prefetch(out.next.data() + channel * next, block.channels * next * static_cast<std::int64_t>(sizeof(T)));
  });
}

/// An image tensor (N, C, ...).
template <class T>
Tensor tensor_of(const T* data, Layout layout, std::int64_t samples, std::int64_t channels, const ImageAxes& size) {
  return Tensor::over(const_cast<T*>(data), {samples, channels, size[0], size[1], size[2]}, dtype_of<T>(), Device::cpu(), nullptr, layout);
}

bool lies_channels_last(Layout layout, std::int64_t channels, const ImageAxes& size) {
  return ImageStrides(layout, channels, size).channels_last();
}

/// An image in channels-last layout: itself, or a copy in `memory`.
template <class T>
const T* in_channels_last(Image<const T> image, std::int64_t samples, std::int64_t channels, const ImageAxes& size, T* memory) {
  if (lies_channels_last(image.layout, channels, size)) return image.data;
  copy(tensor_of(memory, Layout::channels_last, samples, channels, size), tensor_of(image.data, image.layout, samples, channels, size));
  return memory;
}

/// The taps of a kernel's rows that lie in the source, for one output row.
template <class T>
std::vector<TapRow<T>> rows_inside(const Taps& taps, const Direction& d, const ImageAxes& position, const T* source) {
  const std::int64_t channels = d.geometry.groups;
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
                      (kernel_row * d.geometry.kernel[2] + taps[2].first_tap) * channels});
    }
  }
  return rows;
}

/// What a plane's next output row reads that this one, at `position`, does not. None where the image stays in the cache anyway.
template <class T>
std::span<const T> new_rows(const Taps& taps, const Direction& d, const ImageAxes& position, const T* source) {
  const std::int64_t row = d.source[2] * d.geometry.groups, lines = d.source[1];
  if (lines * row * static_cast<std::int64_t>(sizeof(T)) < least_prefetched_bytes || taps[1].tap_offset < 0) return {};
  const std::int64_t end = (position[1] + 1) * taps[1].step + taps[1].offset + (taps[1].count - 1) * taps[1].tap_offset + 1;
  const std::int64_t first = std::clamp<std::int64_t>(end - taps[1].step, 0, lines), last = std::clamp<std::int64_t>(end, 0, lines);
  const std::int64_t plane = std::clamp<std::int64_t>(position[0] * taps[0].step + taps[0].offset, 0, d.source[0] - 1);
  return {source + (plane * lines + first) * row, static_cast<std::size_t>((last - first) * row)};
}

/// One output row, `index` of all rows of the batch.
template <class T>
void compute_row(const Direction& d, std::int64_t index, const T* source, const T* weight, const T* bias, const Rectifier<T>& rectifier,
                 T* output) {
  const std::int64_t channels = d.geometry.groups, n = index / d.output[1] / d.output[0];
  const ImageAxes place = {index / d.output[1] % d.output[0], index % d.output[1], 0};
  const T* const sample = source + n * product(d.source) * channels;
  ImageAxes phase = {place[0] % d.output_step[0], place[1] % d.output_step[1], 0};
  for (; phase[2] < d.phases[2]; ++phase[2]) {
    const Taps taps = d.taps(phase);
    const ImageAxes position = {place[0] / d.output_step[0], place[1] / d.output_step[1], 0};
    const std::int64_t positions = (d.output[2] - phase[2] + d.output_step[2] - 1) / d.output_step[2];
    const std::vector<TapRow<T>> rows = rows_inside(taps, d, position, sample);
    convolve_row<T>({rows,
                     {taps[2], positions, d.source[2]},
                     channels,
                     weight,
                     bias,
                     output + (index * d.output[2] + phase[2]) * channels,
                     d.output_step[2] * channels,
                     rectifier.low,
                     rectifier.high,
                     new_rows(taps, d, position, sample)});
  }
}

/// sums (a block of channels) += the products of a gradient's row and what a tap reads.
template <class T, class Block>
void add_row_products(const T* gradient, std::int64_t gradient_step, const T* source, std::int64_t source_step, std::int64_t positions,
                      T* sums, Block block) {
  constexpr int vectors = Block::vectors;
  Vector<T> totals[vectors] = {};
  for (std::int64_t p = 0; p < positions; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Vector<T> factor = block.load(gradient + p * gradient_step + v * lanes<T>);
      totals[v] = simd::multiply_add(factor, block.load(source + p * source_step + v * lanes<T>), totals[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) block.store(sums + v * lanes<T>, block.load(sums + v * lanes<T>) + totals[v]);
}

/// Adds what one row of the output's gradient gives to the sums (taps, channels).
template <class T>
void add_row(const Direction& d, std::int64_t index, const T* source, const T* gradient, T* sums) {
  const std::int64_t channels = d.geometry.groups, n = index / d.output[1] / d.output[0];
  const Taps taps = d.taps({});
  const RowTaps row_taps{taps[2], d.output[2], d.source[2]};
  const ImageAxes position = {index / d.output[1] % d.output[0], index % d.output[1], 0};
  const std::int64_t step = taps[2].step * channels;
  for (const TapRow<T>& row : rows_inside<T>(taps, d, position, source + n * product(d.source) * channels)) {
    for (std::int64_t tap = 0; tap < taps[2].count; ++tap) {
      const auto [first, last] = row_taps.positions_inside(tap);
      const T* const from = row.source + row_taps.source(first, tap) * channels;
      const T* const factors = gradient + (index * d.output[2] + first) * channels;
      T* const to = sums + row.weight + tap * channels;
      std::int64_t c = 0;
      const auto add = [&, positions = last - first](auto block) {
        for (; c + block.channels <= channels; c += block.channels) {
          add_row_products(factors + c, channels, from + c, step, positions, to + c, block);
        }
      };
      add(ChannelBlock<T, 4>{4 * lanes<T>});
      add(ChannelBlock<T, 1>{lanes<T>});
      if (c < channels) add(ChannelBlock<T, 0>{channels - c});
    }
  }
}

EvenBlocks gradient_slices(const ConvolutionGeometry& g) {
  const std::int64_t rows = g.batch * g.output[0] * g.output[1];
  return {rows, std::max<std::int64_t>(1, (rows + most_slices - 1) / most_slices)};
}

/// The scratch memory that all threads share: copies of images that do not lie channels-last, and sums.
struct Scratch {
  ScratchParts all;
  std::size_t source, output, weights;

  /// `sets` of weights.
  Scratch(const Direction& d, ImageLayouts layouts, std::int64_t sets, std::size_t element_size) {
    const std::int64_t channels = d.geometry.groups;
    const auto copied = [&](Layout layout, const ImageAxes& size) {
      return lies_channels_last(layout, channels, size) ? 0 : d.geometry.batch * channels * product(size);
    };
    source = all.add(copied(layouts.source, d.source), element_size);
    output = all.add(copied(layouts.output, d.output), element_size);
    weights = all.add(sets * packed_depthwise_elements(d), element_size);
  }
};

/// An item of work is a row of the output.
WorkSplit output_rows(const Direction& d, const Finish& finish) {
  const std::int64_t rows = d.geometry.batch * d.output[0] * d.output[1];
  return {rows, d.output[2] * d.geometry.groups * product(d.geometry.kernel), finish.workspace_bytes};
}

}  // namespace

std::int64_t packed_depthwise_elements(const Direction& d) { return d.geometry.groups * product(d.geometry.kernel); }

template <class T>
void pack_depthwise(const Direction& d, Image<const T> weight, T* packed) {
  const ConvolutionGeometry& g = d.geometry;
  // A weight of one channel lies alike in both layouts.
  copy(tensor_of(packed, Layout::channels_last, 1, g.groups, g.kernel), tensor_of(weight.data, Layout::contiguous, 1, g.groups, g.kernel));
}

std::size_t depthwise_scratch(const Direction& d, ImageLayouts layouts, std::size_t element_size, const Finish& finish) {
  return Scratch(d, layouts, 0, element_size).all.bytes() + output_rows(d, finish).scratch();
}

template <class T>
void depthwise_convolve(const Direction& d, Image<const T> source, const T* packed, const T* bias, Image<T> output,
                        std::span<std::byte> scratch, const Finish& finish) {
  const ConvolutionGeometry& g = d.geometry;
  const Scratch parts(d, {source.layout, output.layout}, 0, sizeof(T));
  const std::int64_t channels = g.groups;
  const T* const image = in_channels_last(source, g.batch, channels, d.source, scratch_part<T>(scratch, parts.source));
  const bool in_place = lies_channels_last(output.layout, channels, d.output);
  T* const results = in_place ? output.data : scratch_part<T>(scratch, parts.output);
  const std::int64_t row_elements = d.output[2] * channels;
  const auto for_each_row = [&](const auto& body) { output_rows(d, finish).run(scratch.subspan(parts.all.bytes()), body); };
  const auto finish_row = [&](std::int64_t row, std::byte* workspace) {
    if (finish.run) finish.run({.begin = row * row_elements, .length = row_elements}, workspace);
  };
  for_each_row([&](std::int64_t row, std::byte* workspace) {
    compute_row(d, row, image, packed, bias, finish.rectifier<T>(), results);
    if (in_place) finish_row(row, workspace);
  });
  if (in_place) return;
  copy(tensor_of(output.data, output.layout, g.batch, channels, d.output),
       tensor_of(results, Layout::channels_last, g.batch, channels, d.output));
  for_each_row(finish_row);  // as many elements at a time, wherever they lie
}

std::size_t depthwise_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  return Scratch(Direction::forward(g), layouts, gradient_slices(g).count, element_size).all.bytes();
}

template <class T>
void depthwise_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                               std::span<std::byte> scratch) {
  const Direction d = Direction::forward(g);
  const EvenBlocks slices = gradient_slices(g);
  const Scratch parts(d, {input.layout, output.layout}, slices.count, sizeof(T));
  const std::int64_t channels = g.groups, taps = product(g.kernel);
  const T* const image = in_channels_last(input, g.batch, channels, g.input, scratch_part<T>(scratch, parts.source));
  const T* const gradient = in_channels_last(output, g.batch, channels, g.output, scratch_part<T>(scratch, parts.output));
  T* const sums = scratch_part<T>(scratch, parts.weights);
  parallel_for(slices.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slice = begin; slice < end; ++slice) {
      T* const own = sums + slice * channels * taps;
      std::fill_n(own, channels * taps, T(0));
      for (std::int64_t i = 0; i < slices.length_of(slice); ++i) add_row(d, slices.begin(slice) + i, image, gradient, own);
    }
  });
  parallel_for(channels, 1 + 4096 / (taps * (slices.count + 1)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (std::int64_t channel = begin; channel < end; ++channel) {
        double sum = 0;
        for (std::int64_t slice = 0; slice < slices.count; ++slice)
          sum += static_cast<double>(sums[(slice * taps + tap) * channels + channel]);
        weight.data[channel * taps + tap] = static_cast<T>(sum);
      }
    }
  });
}

template void pack_depthwise(const Direction&, Image<const float>, float*);
template void pack_depthwise(const Direction&, Image<const double>, double*);
template void depthwise_convolve(const Direction&, Image<const float>, const float*, const float*, Image<float>, std::span<std::byte>,
                                 const Finish&);
template void depthwise_convolve(const Direction&, Image<const double>, const double*, const double*, Image<double>, std::span<std::byte>,
                                 const Finish&);
template void depthwise_weight_gradient(const ConvolutionGeometry&, Image<const float>, Image<const float>, Image<float>,
                                        std::span<std::byte>);
template void depthwise_weight_gradient(const ConvolutionGeometry&, Image<const double>, Image<const double>, Image<double>,
                                        std::span<std::byte>);

}  // namespace frit::ops
