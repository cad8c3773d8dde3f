#include "frit/ops/convolution/cpu/small_groups_cpu.h"

#include "frit/ops/convolution/cpu/small_groups.h"
#include "frit/ops/cpu/prefetch.h"

namespace frit::ops {
namespace {

using namespace small_groups;

/// Positions that are computed at a time.
constexpr int most_positions = 6;
/// Planes of a source of so many bytes come from a cache that cores share, or from memory.
constexpr std::int64_t least_prefetched_bytes = 512 * 1024;

/// A row of the output, of one phase.
template <class T>
struct OutputRow {
  std::span<const TapRow<T>> rows;
  RowTaps taps;
  std::int64_t channels, source_channels;
  const T *weight, *bias;
  T* output;
  std::int64_t step;        ///< between positions of the output
  T low, high;              ///< its bounds
  std::span<const T> next;  ///< of the source, what the next row reads for the first time
};

/// `count` positions from `position` on, for the block of channels from `channel` on, whose taps are [first_tap, last_tap).
template <int count, class T, class Block, class Source>
void convolve_positions(const OutputRow<T>& out, std::int64_t first_tap, std::int64_t last_tap, std::int64_t position, std::int64_t channel,
                        const Block& block, const Source& lanes_of_source) {
  constexpr int vectors = Block::vectors, inputs = Source::count;
  Vector<T> sums[count][vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const Vector<T> start = out.bias == nullptr ? Vector<T>{} : block.load(out.bias + channel + v * lanes<T>);
#pragma GCC unroll 8
    for (int p = 0; p < count; ++p) sums[p][v] = start;
  }
  const std::int64_t step = out.taps.axis.step * out.source_channels, tap_weights = out.taps.axis.tap_step * inputs * out.channels;
  for (const TapRow<T>& row : out.rows) {
    for (std::int64_t tap = first_tap; tap < last_tap; ++tap) {
      const T* const source = row.source + out.taps.source(position, tap) * out.source_channels + lanes_of_source.first(channel);
      const T* const weight = out.weight + row.weight + tap * tap_weights + channel;
#pragma GCC unroll 8
      for (int i = 0; i < inputs; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          const Vector<T> factor = block.load(weight + i * out.channels + v * lanes<T>);
#pragma GCC unroll 8
          for (int p = 0; p < count; ++p)
            sums[p][v] = simd::multiply_add(lanes_of_source.load(block, source + p * step + v * lanes<T>, i), factor, sums[p][v]);
        }
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
template <class T, bool in_pairs, class Body>
void for_each_channel_block(std::int64_t channels, const Body& body) {
  constexpr std::int64_t n = lanes<T>;
  if (channels < n) return body(0, ChannelBlock<T, 0>{channels});
  std::int64_t channel = 0;
  if constexpr (in_pairs) {
    for (; channel + 2 * n <= channels; channel += 2 * n) body(channel, ChannelBlock<T, 2>{2 * n});
  }
  for (; channel + n <= channels; channel += n) body(channel, ChannelBlock<T, 1>{n});
  if (channel < channels) body(channels - n, ChannelBlock<T, 1>{n});
}

template <int inputs, class T>
void convolve_row(const OutputRow<T>& out, const SourceLanes<T, inputs>& source) {
  const std::int64_t positions = out.taps.positions, count = out.taps.axis.count;
  const auto [first, last] = out.taps.whole();
  const std::int64_t next = std::ssize(out.next) / out.channels;  // of each channel
  for_each_channel_block<T, inputs == 0>(out.channels, [&, first = first, last = last](std::int64_t channel, auto block) {
    std::int64_t position = 0;
    const auto at_edge = [&](std::int64_t end) {
      for (; position < end; ++position) {
        const auto [first_tap, last_tap] = out.taps.taps_inside(position);
        convolve_positions<1>(out, first_tap, last_tap, position, channel, block, source);
      }
    };
    const auto whole = [&](auto at_a_time) {
      for (; position + at_a_time <= last; position += at_a_time) {
        convolve_positions<at_a_time>(out, 0, count, position, channel, block, source);
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

/// What a plane's next output row reads that this one, at `position`, does not. None where the image stays in the cache anyway.
template <class T>
std::span<const T> new_rows(const Taps& taps, const Direction& d, const ImageAxes& position, const T* source) {
  const std::int64_t row = d.source[2] * d.geometry.groups * d.channels, lines = d.source[1];
  if (lines * row * static_cast<std::int64_t>(sizeof(T)) < least_prefetched_bytes || taps[1].tap_offset < 0) return {};
  const std::int64_t end = (position[1] + 1) * taps[1].step + taps[1].offset + (taps[1].count - 1) * taps[1].tap_offset + 1;
  const std::int64_t first = std::clamp<std::int64_t>(end - taps[1].step, 0, lines), last = std::clamp<std::int64_t>(end, 0, lines);
  const std::int64_t plane = std::clamp<std::int64_t>(position[0] * taps[0].step + taps[0].offset, 0, d.source[0] - 1);
  return {source + (plane * lines + first) * row, static_cast<std::size_t>((last - first) * row)};
}

/// One output row, `index` of all rows of the batch.
template <int inputs, class T>
void compute_row(const Direction& d, const SourceLanes<T, inputs>& lanes_of_source, std::int64_t index, const T* source, const T* weight,
                 const T* bias, const Rectifier<T>& rectifier, T* output) {
  const std::int64_t channels = d.geometry.groups * d.rows, source_channels = d.geometry.groups * d.channels;
  const ImageAxes place = {index / d.output[1] % d.output[0], index % d.output[1], 0};
  const T* const sample = source + index / d.output[1] / d.output[0] * product(d.source) * source_channels;
  ImageAxes phase = {place[0] % d.output_step[0], place[1] % d.output_step[1], 0};
  for (; phase[2] < d.phases[2]; ++phase[2]) {
    const Taps taps = d.taps(phase);
    const ImageAxes position = {place[0] / d.output_step[0], place[1] / d.output_step[1], 0};
    const std::int64_t positions = (d.output[2] - phase[2] + d.output_step[2] - 1) / d.output_step[2];
    const std::vector<TapRow<T>> rows = rows_inside(taps, d, position, sample);
    const OutputRow<T> row{rows,
                           {taps[2], positions, d.source[2]},
                           channels,
                           source_channels,
                           weight,
                           bias,
                           output + (index * d.output[2] + phase[2]) * channels,
                           d.output_step[2] * channels,
                           rectifier.low,
                           rectifier.high,
                           new_rows(taps, d, position, sample)};
    convolve_row(row, lanes_of_source);
  }
}

/// An item of work is a row of the output.
WorkSplit output_rows(const Direction& d, const Finish& finish) {
  const std::int64_t rows = d.geometry.batch * d.output[0] * d.output[1];
  return {rows, d.output[2] * packed_small_groups_elements(d), finish.workspace_bytes};
}

}  // namespace

bool has_small_groups(const Direction& d, std::size_t element_size) {
  if (is_depthwise(d.geometry)) return true;
  const std::int64_t width = simd::vector_bytes / static_cast<std::int64_t>(element_size);
  const bool shuffled = element_size == sizeof(float) ? simd::shuffles<float> : simd::shuffles<double>;
  if (!shuffled || d.geometry.groups == 1 || d.rows == 0) return false;
  return d.rows < width && width % d.rows == 0 && (d.channels == 1 || d.channels == d.rows);
}

const char* small_groups_schedule(const Direction& d) {
  return is_depthwise(d.geometry) ? "a kernel for each channel" : "groups in the lanes of a vector";
}

std::int64_t packed_small_groups_elements(const Direction& d) {
  return d.geometry.groups * d.rows * d.channels * product(d.geometry.kernel);
}

template <class T>
void pack_small_groups(const Direction& d, Image<const T> weight, T* packed) {
  const ConvolutionGeometry& g = d.geometry;
  const ImageStrides strides(weight.place, g.in_channels, g.kernel);
  for (std::int64_t tap = 0; tap < product(g.kernel); ++tap) {
    const ImageAxes at = tap_at(g.kernel, tap);
    for (std::int64_t i = 0; i < d.channels; ++i) {
      for (std::int64_t group = 0; group < g.groups; ++group) {
        for (std::int64_t row = 0; row < d.rows; ++row) {
          const std::int64_t out = d.back ? i : row, in = d.back ? row : i;
          *packed++ = weight.data[strides.place(group * g.out_channels + out, in, at)];
        }
      }
    }
  }
}

std::size_t small_groups_scratch(const Direction& d, ImageLayouts layouts, std::size_t element_size, const Finish& finish) {
  return Scratch(d, layouts, 0, element_size).all.bytes() + output_rows(d, finish).scratch();
}

template <class T>
void convolve_small_groups(const Direction& d, Image<const T> source, const T* packed, const T* bias, Image<T> output,
                           std::span<std::byte> scratch, const Finish& finish) {
  const ConvolutionGeometry& g = d.geometry;
  const Scratch parts(d, {source.place, output.place}, 0, sizeof(T));
  const std::int64_t channels = g.groups * d.rows;
  const T* const image = in_channels_last(source, g.batch, g.groups * d.channels, d.source, scratch_part<T>(scratch, parts.source));
  const bool in_place = lies_channels_last(output.place, channels, d.output);
  T* const results = in_place ? output.data : scratch_part<T>(scratch, parts.output);
  const std::int64_t row_elements = d.output[2] * channels;
  const auto for_each_row = [&](const auto& body) { output_rows(d, finish).run(scratch.subspan(parts.all.bytes()), body); };
  const auto finish_row = [&](std::int64_t row, std::byte* workspace) {
    if (finish.run) finish.run({.begin = row * row_elements, .length = row_elements}, workspace);
  };
  dispatch_inputs(d, [&](auto inputs) {
    const SourceLanes<T, inputs> lanes_of_source(d);
    for_each_row([&](std::int64_t row, std::byte* workspace) {
      compute_row(d, lanes_of_source, row, image, packed, bias, finish.rectifier<T>(), results);
      if (in_place) finish_row(row, workspace);
    });
  });
  if (in_place) return;
  copy(tensor_of(output.data, output.place.layout, g.batch, channels, d.output),
       tensor_of(results, Layout::channels_last, g.batch, channels, d.output));
  for_each_row(finish_row);  // as many elements at a time, wherever they lie
}

template void pack_small_groups(const Direction&, Image<const float>, float*);
template void pack_small_groups(const Direction&, Image<const double>, double*);
template void convolve_small_groups(const Direction&, Image<const float>, const float*, const float*, Image<float>, std::span<std::byte>,
                                    const Finish&);
template void convolve_small_groups(const Direction&, Image<const double>, const double*, const double*, Image<double>,
                                    std::span<std::byte>, const Finish&);

}  // namespace frit::ops
