#include "frit/core/thread_pool.h"
#include "frit/ops/convolution/cpu/small_groups.h"

namespace frit::ops {
namespace {

using namespace small_groups;

/// The rows of a gradient are cut into no more slices than this, whose sums are added in their order.
constexpr std::int64_t most_slices = 32;

/// sums (the source's channels of a group, the output's channels) of a block += the products of a gradient's row and what a tap reads.
template <class T, class Block, class Source>
void add_row_products(const T* gradient, std::int64_t gradient_step, const T* source, std::int64_t source_step, std::int64_t positions,
                      T* sums, std::int64_t sums_step, const Block& block, const Source& lanes_of_source) {
  constexpr int vectors = Block::vectors, inputs = Source::count;
  Vector<T> totals[inputs][vectors] = {};
  for (std::int64_t p = 0; p < positions; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Vector<T> factor = block.load(gradient + p * gradient_step + v * lanes<T>);
#pragma GCC unroll 8
      for (int i = 0; i < inputs; ++i) {
        const Vector<T> value = lanes_of_source.load(block, source + p * source_step + v * lanes<T>, i);
        totals[i][v] = simd::multiply_add(factor, value, totals[i][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < inputs; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* const to = sums + i * sums_step + v * lanes<T>;
      block.store(to, block.load(to) + totals[i][v]);
    }
  }
}

/// Adds what one row of the output's gradient gives to the sums, which lie as a packed weight.
template <int inputs, class T>
void add_row(const Direction& d, const SourceLanes<T, inputs>& lanes_of_source, std::int64_t index, const T* source, const T* gradient,
             T* sums) {
  const std::int64_t channels = d.geometry.groups * d.rows, source_channels = d.geometry.groups * d.channels;
  const Taps taps = d.taps({});
  const RowTaps row_taps{taps[2], d.output[2], d.source[2]};
  const ImageAxes position = {index / d.output[1] % d.output[0], index % d.output[1], 0};
  const T* const sample = source + index / d.output[1] / d.output[0] * product(d.source) * source_channels;
  for (const TapRow<T>& row : rows_inside<T>(taps, d, position, sample)) {
    for (std::int64_t tap = 0; tap < taps[2].count; ++tap) {
      const auto [first, last] = row_taps.positions_inside(tap);
      const T* const from = row.source + row_taps.source(first, tap) * source_channels;
      const T* const factors = gradient + (index * d.output[2] + first) * channels;
      T* const to = sums + row.weight + tap * d.channels * channels;
      std::int64_t c = 0;
      const auto add = [&, positions = last - first](auto block) {
        for (; c + block.channels <= channels; c += block.channels) {
          add_row_products(factors + c, channels, from + lanes_of_source.first(c), taps[2].step * source_channels, positions, to + c,
                           channels, block, lanes_of_source);
        }
      };
      if constexpr (inputs == 0) add(ChannelBlock<T, 4>{4 * lanes<T>});
      add(ChannelBlock<T, 1>{lanes<T>});
      if (c < channels) add(ChannelBlock<T, 0>{channels - c});
    }
  }
}

EvenBlocks gradient_slices(const ConvolutionGeometry& g) {
  const std::int64_t rows = g.batch * g.output[0] * g.output[1];
  return {rows, std::max<std::int64_t>(1, (rows + most_slices - 1) / most_slices)};
}

}  // namespace

std::size_t small_groups_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  return Scratch(Direction::forward(g), layouts, gradient_slices(g).count, element_size).all.bytes();
}

template <class T>
void small_groups_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                                  std::span<std::byte> scratch) {
  const Direction d = Direction::forward(g);
  const EvenBlocks slices = gradient_slices(g);
  const Scratch parts(d, {input.place, output.place}, slices.count, sizeof(T));
  const std::int64_t channels = g.groups * d.rows, elements = packed_small_groups_elements(d);
  const T* const image = in_channels_last(input, g.batch, g.groups * d.channels, g.input, scratch_part<T>(scratch, parts.source));
  const T* const gradient = in_channels_last(output, g.batch, channels, g.output, scratch_part<T>(scratch, parts.output));
  T* const sums = scratch_part<T>(scratch, parts.weights);
  dispatch_inputs(d, [&](auto inputs) {
    const SourceLanes<T, inputs> lanes_of_source(d);
    parallel_for(slices.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slice = begin; slice < end; ++slice) {
        T* const own = sums + slice * elements;
        std::fill_n(own, elements, T(0));
        for (std::int64_t i = 0; i < slices.length_of(slice); ++i)
          add_row(d, lanes_of_source, slices.begin(slice) + i, image, gradient, own);
      }
    });
  });
  const ImageStrides strides(weight.place, g.in_channels, g.kernel);
  parallel_for(elements, 1 + 4096 / (slices.count + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t element = begin; element < end; ++element) {
      double sum = 0;
      for (std::int64_t slice = 0; slice < slices.count; ++slice) sum += static_cast<double>(sums[slice * elements + element]);
      const std::int64_t channel = element % channels, i = element / channels % d.channels, tap = element / channels / d.channels;
      weight.data[strides.place(channel, i, tap_at(g.kernel, tap))] = static_cast<T>(sum);
    }
  });
}

template void small_groups_weight_gradient(const ConvolutionGeometry&, Image<const float>, Image<const float>, Image<float>,
                                           std::span<std::byte>);
template void small_groups_weight_gradient(const ConvolutionGeometry&, Image<const double>, Image<const double>, Image<double>,
                                           std::span<std::byte>);

}  // namespace frit::ops
