#include <algorithm>

#include "frit/ops/convolution/cpu/convolution_cpu.h"
#include "frit/ops/convolution/cpu/depthwise_cpu.h"
#include "frit/ops/convolution/cpu/packed_weight.h"
#include "frit/ops/convolution/cpu/winograd_weight_gradient_cpu.h"
#include "frit/ops/cpu/run_product.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

/// Elements of the runs and columns that one item of work computes, and positions whose products are summed in one accumulator.
constexpr std::int64_t most_depth = 128, most_columns = 128, most_positions = 128;
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
  std::int64_t row_stride;  ///< of the chunk's elements, copied: lines on different cache sets
  ScratchParts shared;
  std::size_t window_place, partial_place;
  WorkSplit work;

  Plan(const ConvolutionGeometry& g, ImageLayouts layouts, Layout weight_layout, std::size_t element_size)
      : direction(Direction::forward(g)),
        source(layouts.source, g.groups * g.in_channels, g.input),
        output(layouts.output, g.groups * g.out_channels, g.output),
        weight(weight_layout, g.in_channels, g.kernel),
        whole{0, g.batch, {}, g.output},
        window(direction, source, whole),
        taps(direction.taps({}), window, weight, most_depth),
        columns(g.out_channels, most_columns, product_vectors * simd::vector_bytes / static_cast<std::int64_t>(element_size)),
        blocks(whole.positions(), most_positions),
        packed(direction, weight, element_size),
        row_stride(packed_stride(std::min(taps.depth, most_depth), element_size)) {
    const std::int64_t parts = g.groups * columns.count * static_cast<std::int64_t>(taps.chunks.size());
    const std::int64_t most_slices = std::max<std::int64_t>(1, enough_items / std::max<std::int64_t>(1, parts));
    slices = EvenBlocks(blocks.count, std::max<std::int64_t>(1, (blocks.count + most_slices - 1) / most_slices));
    window_place = shared.add(window.copied ? g.groups * window.elements(whole) : 0, element_size);
    partial_place = shared.add(slices.count * packed.elements(taps), element_size);
    const std::int64_t cost = most_depth * columns.size * blocks.size * slices.size;
    const std::int64_t block_columns = product_vectors * static_cast<std::int64_t>(simd::vector_bytes / element_size);
    work = WorkSplit(slices.count * parts, cost, static_cast<std::size_t>(most_positions * (row_stride + block_columns)) * element_size);
  }

  std::size_t scratch() const { return shared.bytes() + work.scratch(); }
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

/// Calls body(number in the block, sample, place in the grid) for its positions.
template <class Body>
void for_each_position(const Plan& plan, std::int64_t block, const Body& body) {
  const ImageAxes& grid = plan.direction.grid;
  const std::int64_t first = plan.blocks.begin(block);
  ImageAxes place = {first / (grid[1] * grid[2]) % grid[0], first / grid[2] % grid[1], first % grid[2]};
  std::int64_t sample = first / product(grid);
  for (std::int64_t i = 0; i < plan.blocks.length_of(block); ++i) {
    body(i, sample, place);
    for (std::size_t axis = 3; axis-- > 0;) {
      if (++place[axis] < grid[axis]) break;
      place[axis] = 0;
      if (axis == 0) ++sample;
    }
  }
}

/// What the positions of a block read, of the chunk's elements: (positions, elements).
template <class T>
void copy_rows(const Plan& plan, const Item& item, std::int64_t block, const T* windows, T* rows) {
  for_each_position(plan, block, [&](std::int64_t i, std::int64_t sample, const ImageAxes& place) {
    const T* window = windows + sample * plan.window.sample;
    for (std::size_t axis = 0; axis < 3; ++axis) window += place[axis] * plan.window.reach.step[axis] * plan.window.axis[axis];
    T* to = rows + i * plan.row_stride;
    for (const Run& run : plan.taps.runs_of(item.chunk)) to = std::copy_n(window + run.offset, run.length, to);
  });
}

/// The output's channels at the positions of a block, from `column` of the group on: (positions, width), with zeros after the last.
template <class T>
void copy_columns(const Plan& plan, const Item& item, std::int64_t block, std::int64_t column, std::int64_t width, const T* output,
                  T* columns) {
  const ImageStrides& strides = plan.output;
  const std::int64_t plane = product(strides.size), count = std::min(width, plan.direction.rows - column);
  const T* const channels = output + (item.group * plan.direction.rows + column) * strides.channel;
  for (std::int64_t i = 0; i < plan.blocks.length_of(block); ++i, columns += width) {
    const std::int64_t position = plan.blocks.begin(block) + i;
    const T* const from = channels + position / plane * strides.sample + position % plane * strides.axis[2];
    for (std::int64_t c = 0; c < count; ++c) columns[c] = from[c * strides.channel];
    std::fill(columns + count, columns + width, T(0));
  }
}

template <class T>
void add_item(const Plan& plan, const Item& item, const T* windows, const T* output, T* partial, std::byte* workspace) {
  T* const rows = reinterpret_cast<T*>(workspace);
  T* const columns = rows + most_positions * plan.row_stride;
  for (std::int64_t i = 0; i < plan.slices.length_of(item.slice); ++i) {
    const std::int64_t block = plan.slices.begin(item.slice) + i;
    copy_rows(plan, item, block, windows, rows);
    for (std::int64_t column = item.column; column < item.column + item.columns; column += product_columns<T>) {
      const int vectors = plan.packed.vectors(column);
      const std::int64_t width = vectors * simd::lanes<T>;
      copy_columns(plan, item, block, column, width, output, columns);
      T* const sums =
          partial + item.slice * plan.packed.elements(plan.taps) + plan.packed.place(plan.taps, item.group, column, item.chunk.begin);
      if (i == 0) std::fill_n(sums, item.chunk.length * width, T(0));
      add_outer_products<T>({.positions = plan.blocks.length_of(block),
                             .rows = item.chunk.length,
                             .vectors = vectors,
                             .a = rows,
                             .a_stride = plan.row_stride,
                             .b = columns,
                             .b_stride = width,
                             .c = sums,
                             .c_stride = width});
    }
  }
}

}  // namespace

const char* weight_gradient_schedule(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  if (is_depthwise(g)) return "a kernel for each channel";
  return suits_winograd_weight_gradient(g, layouts, element_size) ? "in 4 x 4 tiles by Winograd's filtering" : "products over positions";
}

std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  if (is_depthwise(g)) return depthwise_weight_gradient_scratch(g, layouts, element_size);
  if (suits_winograd_weight_gradient(g, layouts, element_size)) return winograd_weight_gradient_scratch(g);
  return Plan(g, layouts, Layout::contiguous, element_size).scratch();
}

template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                              std::span<std::byte> scratch) {
  if (is_depthwise(g)) return depthwise_weight_gradient(g, output, input, weight, scratch);
  if constexpr (std::is_same_v<T, float>) {
    if (suits_winograd_weight_gradient(g, {input.layout, output.layout}, sizeof(T))) {
      return winograd_weight_gradient(g, output.data, input.data, weight, scratch);
    }
  }
  const Plan plan(g, {input.layout, output.layout}, weight.layout, sizeof(T));
  const Direction& d = plan.direction;
  T* const copied = scratch_part<T>(scratch, plan.window_place);
  T* const partial = scratch_part<T>(scratch, plan.partial_place);
  if (plan.window.copied) copy_windows(plan, input.data, copied);
  const T* const windows = plan.window.copied ? copied : input.data + plan.window.first(plan.whole);
  const std::int64_t group_windows = plan.window.copied ? plan.window.elements(plan.whole) : d.channels;
  plan.work.run(scratch.subspan(plan.shared.bytes()), [&](std::int64_t index, std::byte* workspace) {
    const Item item(plan, index);
    add_item(plan, item, windows + item.group * group_windows, output.data, partial, workspace);
  });
  plan.packed.unpack_sums(plan.taps, partial, plan.slices.count, plan.packed.elements(plan.taps), weight.data);
}

template void convolve_weight_gradient(const ConvolutionGeometry&, Image<const float>, Image<const float>, Image<float>,
                                       std::span<std::byte>);
template void convolve_weight_gradient(const ConvolutionGeometry&, Image<const double>, Image<const double>, Image<double>,
                                       std::span<std::byte>);

}  // namespace frit::ops
