#include <algorithm>

#include "frit/ops/convolution/convolution_cpu.h"
#include "frit/ops/convolution/depthwise/depthwise_cpu.h"
#include "frit/ops/convolution/packed_weight.h"

namespace frit::ops {
namespace {

/// Elements of the runs and columns that one item of work computes, and positions whose products are summed in one accumulator.
constexpr std::int64_t most_depth = 128, most_columns = 64, most_positions = 128;
/// With fewer items than this the positions are cut into slices; the partial sums are added afterwards.
constexpr std::int64_t enough_items = 32;

/// The weight's gradient is the product of two matrices over all positions of the batch: of what each reads of its window, and of the
/// output's channels, the columns. How the work is cut depends on the sizes and layouts alone.
struct Plan {
  Direction direction;
  ImageStrides source, output, weight;
  Box whole;
  Window window;
  TapRuns taps;
  EvenBlocks columns, blocks, slices;
  PackedWeight packed;
  bool packs_output;  ///< as it is not channels-last in whole vectors
  std::size_t window_bytes, output_bytes, partial_bytes;
  WorkSplit work;

  Plan(const ConvolutionGeometry& g, ImageLayouts layouts, Layout weight_layout, std::size_t element_size)
      : direction(Direction::forward(g)),
        source(layouts.input, g.groups * g.in_channels, g.input),
        output(layouts.output, g.groups * g.out_channels, g.output),
        weight(weight_layout, g.in_channels, g.kernel),
        whole{0, g.batch, {}, g.output},
        window(direction, source, whole),
        taps(direction.taps({}), window, weight, most_depth),
        columns(g.out_channels, most_columns, product_vectors * simd::vector_bytes / static_cast<std::int64_t>(element_size)),
        blocks(whole.positions(), most_positions),
        packed(direction, weight, element_size),
        packs_output(!output.channels_last() || g.out_channels != packed.columns()) {
    const std::int64_t parts = g.groups * columns.count * static_cast<std::int64_t>(taps.chunks.size());
    const std::int64_t most_slices = std::max<std::int64_t>(1, enough_items / std::max<std::int64_t>(1, parts));
    slices = EvenBlocks(blocks.count, std::max<std::int64_t>(1, (blocks.count + most_slices - 1) / most_slices));
    const auto bytes = [&](std::int64_t elements) { return (static_cast<std::size_t>(elements) * element_size + 63) / 64 * 64; };
    window_bytes = window.copied ? bytes(g.groups * window.elements(whole)) : 0;
    output_bytes = packs_output ? bytes(g.groups * whole.positions() * packed.columns()) : 0;
    partial_bytes = bytes(slices.count * sums());
    const std::int64_t cost = most_depth * columns.size * blocks.size * slices.size;
    work = WorkSplit(slices.count * parts, cost, 0);
  }

  /// Of one slice, a packed weight.
  std::int64_t sums() const { return packed.elements(taps); }
  std::size_t scratch() const { return window_bytes + output_bytes + partial_bytes; }
};

/// The source's windows, (groups, batch, ...) of the whole image, which begin at the first position's.
template <class T>
void copy_windows(const Plan& plan, const T* source, T* windows) {
  const Direction& d = plan.direction;
  const std::int64_t rows = plan.window.rows(plan.whole), row_elements = plan.window.size(plan.whole, 2) * d.channels;
  parallel_for(d.geometry.groups * rows, 16384 / (row_elements + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t group = i / rows;
      T* const window = windows + group * plan.window.elements(plan.whole);
      copy_window(plan.window, plan.whole, plan.source, source, group * d.channels, i % rows, i % rows + 1, window);
    }
  });
}

/// The output as (groups, positions, columns), with zeros up to whole vectors.
template <class T>
void pack_output(const Plan& plan, const T* output, T* packed) {
  const Direction& d = plan.direction;
  const std::int64_t plane = product(d.grid), stride = plan.output.axis[2];
  parallel_for(d.geometry.groups * plan.blocks.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t group = i / plan.blocks.count, block = i % plan.blocks.count, first = plan.blocks.begin(block);
      for (std::int64_t k = 0; k < plan.blocks.length_of(block); ++k) {
        const std::int64_t position = first + k;
        const T* const from =
            output + position / plane * plan.output.sample + position % plane * stride + group * d.rows * plan.output.channel;
        T* const to = packed + (group * plan.whole.positions() + position) * plan.packed.columns();
        for (std::int64_t c = 0; c < d.rows; ++c) to[c] = from[c * plan.output.channel];
        std::fill(to + d.rows, to + plan.packed.columns(), T(0));
      }
    }
  });
}

/// What one item of work sums: columns [column, column + columns) for the elements of a chunk, over a slice of the positions.
struct Item {
  std::int64_t slice, group, column, columns;
  const Chunk& chunk;

  Item(const Plan& plan, std::int64_t index)
      : slice(index / plan.columns.count / static_cast<std::int64_t>(plan.taps.chunks.size()) / plan.direction.geometry.groups),
        group(index / plan.columns.count / static_cast<std::int64_t>(plan.taps.chunks.size()) % plan.direction.geometry.groups),
        column(plan.columns.begin(index % plan.columns.count)),
        columns(plan.columns.length_of(index % plan.columns.count)),
        chunk(plan.taps.chunks[static_cast<std::size_t>(index / plan.columns.count) % plan.taps.chunks.size()]) {}
};

/// Where the positions of a block have their windows and columns.
struct BlockOffsets {
  std::array<std::int64_t, most_positions> windows, columns;
  std::size_t count;

  BlockOffsets(const Plan& plan, std::int64_t block, std::int64_t column_stride)
      : count(static_cast<std::size_t>(plan.blocks.length_of(block))) {
    const ImageAxes& grid = plan.direction.grid;
    const std::int64_t first = plan.blocks.begin(block);
    ImageAxes place = {first / (grid[1] * grid[2]) % grid[0], first / grid[2] % grid[1], first % grid[2]};
    std::int64_t sample = first / product(grid);
    for (std::size_t i = 0; i < count; ++i) {
      windows[i] = sample * plan.window.sample;
      for (std::size_t a = 0; a < 3; ++a) windows[i] += place[a] * plan.window.reach.step[a] * plan.window.axis[a];
      columns[i] = (first + static_cast<std::int64_t>(i)) * column_stride;
      for (std::size_t a = 3; a-- > 0;) {
        if (++place[a] < grid[a]) break;
        place[a] = 0;
        if (a == 0) ++sample;
      }
    }
  }
};

template <class T>
void add_item(const Plan& plan, const Item& item, const T* windows, const T* columns, std::int64_t column_stride, T* partial) {
  T* const sums = partial + item.slice * plan.sums();
  const auto for_each_block = [&](const auto& body) {
    for (std::int64_t column = item.column; column < item.column + item.columns; column += product_columns<T>) {
      const int vectors = plan.packed.vectors(column);
      body(column, vectors, vectors * simd::lanes<T>, sums + plan.packed.place(plan.taps, item.group, column, item.chunk.begin));
    }
  };
  for_each_block([&](std::int64_t, int, std::int64_t width, T* c) { std::fill_n(c, item.chunk.length * width, T(0)); });
  for (std::int64_t i = 0; i < plan.slices.length_of(item.slice); ++i) {
    const BlockOffsets offsets(plan, plan.slices.begin(item.slice) + i, column_stride);
    for_each_block([&](std::int64_t column, int vectors, std::int64_t width, T* c) {
      for (const Run& run : plan.taps.runs_of(item.chunk)) {
        add_outer_products<T>({.a_offsets = std::span(offsets.windows).first(offsets.count),
                               .b_offsets = std::span(offsets.columns).first(offsets.count),
                               .a = windows + run.offset,
                               .b = columns + column,
                               .rows = run.length,
                               .vectors = vectors,
                               .c = c,
                               .c_stride = width});
        c += run.length * width;
      }
    });
  }
}

}  // namespace

std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  if (is_depthwise(g)) return depthwise_weight_gradient_scratch(g, layouts, element_size);
  return Plan(g, layouts, Layout::contiguous, element_size).scratch();
}

template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                              std::span<std::byte> scratch) {
  if (is_depthwise(g)) return depthwise_weight_gradient(g, output, input, weight, scratch);
  const Plan plan(g, {input.layout, output.layout}, weight.layout, sizeof(T));
  const Direction& d = plan.direction;
  T* const copied = reinterpret_cast<T*>(scratch.data());
  T* const packed = reinterpret_cast<T*>(scratch.data() + plan.window_bytes);
  T* const partial = reinterpret_cast<T*>(scratch.data() + plan.window_bytes + plan.output_bytes);
  if (plan.window.copied) copy_windows(plan, input.data, copied);
  if (plan.packs_output) pack_output(plan, output.data, packed);
  const T* const windows = plan.window.copied ? copied : input.data + plan.window.first(plan.whole);
  const std::int64_t window_group = plan.window.copied ? plan.window.elements(plan.whole) : d.channels;
  const T* const columns = plan.packs_output ? packed : output.data;
  const std::int64_t column_group = plan.packs_output ? plan.whole.positions() * plan.packed.columns() : d.rows;
  const std::int64_t column_stride = plan.packs_output ? plan.packed.columns() : plan.output.axis[2];
  plan.work.run({}, [&](std::int64_t index, std::byte*) {
    const Item item(plan, index);
    add_item(plan, item, windows + item.group * window_group, columns + item.group * column_group, column_stride, partial);
  });
  plan.packed.unpack_sums(plan.taps, partial, plan.slices.count, plan.sums(), weight.data);
}

template void convolve_weight_gradient(const ConvolutionGeometry&, Image<const float>, Image<const float>, Image<float>,
                                       std::span<std::byte>);
template void convolve_weight_gradient(const ConvolutionGeometry&, Image<const double>, Image<const double>, Image<double>,
                                       std::span<std::byte>);

}  // namespace frit::ops
