#include <algorithm>

#include "frit/ops/convolution/cpu/convolution_cpu.h"
#include "frit/ops/convolution/cpu/packed_weight.h"
#include "frit/ops/convolution/cpu/small_groups_cpu.h"
#include "frit/ops/convolution/cpu/winograd_cpu.h"
#include "frit/ops/cpu/run_product.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

/// Positions whose products are summed in one accumulator: what they read for a few rows, and their gradients, stay in the nearest cache.
constexpr std::int64_t most_positions = 128;
/// The weights that one item of work computes: of whole lines of channels at all taps, and as many columns as leave the sums in a core's
/// cache.
constexpr std::int64_t most_rows = 144, most_columns = 128, most_sums = 32 * 1024;
/// With fewer items than this the boxes are cut into slices; the partial sums are added afterwards.
constexpr std::int64_t enough_items = 32;
/// Bytes between the columns of neighbouring positions up to which they are read where they lie: further apart, their lines fall on few
/// cache sets.
constexpr std::int64_t most_step = 256;

constexpr std::int64_t line(std::size_t element_size) { return static_cast<std::int64_t>(64 / element_size); }
constexpr std::int64_t block(std::size_t element_size) {
  return product_vectors * simd::vector_bytes / static_cast<std::int64_t>(element_size);
}

/// The convolution as one that reads all pixels along axes of which its only tap reads one in a stride.
ConvolutionGeometry dense(ConvolutionGeometry g, ImageStrides& source) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (g.kernel[i] > 1 || g.padding[i] > 0 || !source.channels_last()) continue;
    source.axis[i] *= g.stride[i];
    source.size[i] = g.input[i] = g.output[i];
    g.stride[i] = 1;
  }
  return g;
}

/// Some channels of the source. What the positions of a box read of them is copied line by line: a window for each `width` channels, so
/// that what a position's neighbours read lies on different cache sets.
struct Part {
  std::int64_t channels, width, blocks;
  Direction direction;
  Window window;
  std::int64_t window_elements;
  std::vector<std::int64_t> rows = {};  ///< what a position reads, by taps
  std::vector<WeightElement> weights;   ///< and where the weights lie, counted from the first

  Part(const Direction& d, std::int64_t count, const ImageStrides& source, const ImageStrides& weight, const PackedWeight& packed,
       const Box& largest, std::size_t element_size)
      : channels(count),
        width(std::min(channels, line(element_size))),
        blocks((channels + width - 1) / width),
        direction(of_channels(d, width)),
        window(direction, source, largest, width),
        window_elements(window.elements(largest)) {
    const TapRuns taps(direction.taps({}), window, weight, INT64_MAX);
    weights = packed.elements_of(taps, channels);
    for (const Tap& tap : taps.taps) {
      for (std::int64_t c = 0; c < channels; ++c) rows.push_back(tap.offset + c / width * window_elements + c - begin(c / width));
    }
  }

  /// A block's first channel.
  std::int64_t begin(std::int64_t index) const { return std::min(index * width, channels - width); }

 private:
  static Direction of_channels(Direction d, std::int64_t channels) {
    d.channels = channels;
    return d;
  }
};

struct Item;

/// The weight's gradient is the product of two matrices over all positions of the batch: of what each reads of its window, and of the
/// output's channels, the columns. How the work is cut depends on the sizes and layouts alone.
struct Plan {
  ImageStrides source, output, weight;
  ConvolutionGeometry geometry;
  Direction direction;
  PackedWeight packed;
  Boxes boxes;
  EvenBlocks channels, columns, slices;
  Part whole, last;  ///< of the channels
  std::int64_t block_columns, item_elements;
  bool copies_columns;
  ScratchParts shared, own;
  std::size_t partial_place, window_place, columns_place, positions_place, sums_place;
  WorkSplit work;

  Plan(const ConvolutionGeometry& g, ImageLayouts layouts, ImagePlace weight_place, std::size_t element_size)
      : source(layouts.source, g.groups * g.in_channels, g.input),
        output(layouts.output, g.groups * g.out_channels, g.output),
        weight(weight_place, g.in_channels, g.kernel),
        geometry(dense(g, source)),
        direction(Direction::forward(geometry)),
        packed(direction, weight, element_size),
        boxes(g.batch, g.output, most_positions),
        channels(g.in_channels, channels_of_item(element_size), line(element_size)),
        columns(g.out_channels, columns_of_item(element_size), block(element_size)),
        whole(part(channels.size, element_size)),
        last(part(channels.length_of(channels.count - 1), element_size)),
        block_columns(block(element_size)),
        item_elements(channels.size * taps() * packed.whole_vectors(columns.size)),
        copies_columns(!output.channels_last() || packed.columns() != g.out_channels ||
                       output.axis[2] * static_cast<std::int64_t>(element_size) > most_step) {
    const std::int64_t most_slices = std::max<std::int64_t>(1, enough_items / parts());
    slices = EvenBlocks(boxes.count(), std::max<std::int64_t>(1, (boxes.count() + most_slices - 1) / most_slices));
    const Box largest = boxes.largest();
    partial_place = shared.add(sliced() ? slices.count * parts() * item_elements : 0, element_size);
    sums_place = own.add(sliced() ? 0 : item_elements, element_size);
    window_place = own.add(whole.blocks * whole.window_elements, element_size);
    const std::int64_t width = (columns.size + block_columns - 1) / block_columns * block_columns;
    columns_place = own.add(copies_columns ? largest.positions() * width : 0, element_size);
    positions_place = own.add(largest.positions(), sizeof(std::int64_t));
    work = WorkSplit(parts() * slices.count, item_elements * largest.positions() * slices.size, own.bytes());
  }

  std::size_t scratch() const { return shared.bytes() + work.scratch(); }
  std::int64_t taps() const { return product(geometry.kernel); }
  /// Of the weight; each is an item of work in each slice.
  std::int64_t parts() const { return geometry.groups * columns.count * channels.count; }
  bool sliced() const { return slices.count > 1; }
  /// Of an item's first column at the first position of a box.
  std::int64_t place_in_output(const Item& item, const Box& box) const;

 private:
  std::int64_t channels_of_item(std::size_t element_size) const {
    const std::int64_t lines = std::max<std::int64_t>(1, most_rows / taps() / line(element_size));
    return std::min(geometry.in_channels, lines * line(element_size));
  }
  std::int64_t columns_of_item(std::size_t element_size) const {
    const std::int64_t blocks = most_sums / (channels.size * taps()) / block(element_size);
    return std::clamp(blocks * block(element_size), block(element_size), most_columns);
  }
  Part part(std::int64_t count, std::size_t element_size) const {
    return Part(direction, count, source, weight, packed, boxes.largest(), element_size);
  }
};

/// What one item of work sums: for some channels the columns [column, column + columns), over a slice of the boxes.
struct Item {
  std::int64_t slice, group, column, columns, channel;
  const Part& part;

  Item(const Plan& plan, std::int64_t index)
      : slice(index / plan.parts()),
        group(index % plan.parts() / plan.channels.count / plan.columns.count),
        column(plan.columns.begin(index / plan.channels.count % plan.columns.count)),
        columns(plan.columns.length_of(index / plan.channels.count % plan.columns.count)),
        channel(plan.channels.begin(index % plan.channels.count)),
        part(index % plan.channels.count + 1 < plan.channels.count ? plan.whole : plan.last) {}

  std::int64_t rows() const { return static_cast<std::int64_t>(part.rows.size()); }
  /// body(column of the group, where a block's sums are among those of the item)
  template <class Body>
  void for_each_block(const Plan& plan, const Body& body) const {
    for (std::int64_t done = 0; done < columns; done += plan.block_columns) body(column + done, done * rows());
  }
};

std::int64_t Plan::place_in_output(const Item& item, const Box& box) const {
  std::int64_t place = box.sample * output.sample + (item.group * direction.rows + item.column) * output.channel;
  for (std::size_t i = 0; i < 3; ++i) place += box.begin[i] * output.axis[i];
  return place;
}

/// The output's channels at the positions of a box: by blocks of columns (positions, columns of a block). After the last column there may
/// be anything.
template <class T>
void copy_columns(const Plan& plan, const Item& item, const Box& box, const T* output, T* columns) {
  constexpr std::int64_t block = product_columns<T>;
  const ImageStrides& strides = plan.output;
  const std::int64_t positions = box.positions(), of_sample = product(box.size);
  const T* const first = output + plan.place_in_output(item, box);
  if (!strides.channels_last()) {
    for (std::int64_t n = 0; n < box.samples; ++n) {
      for (std::int64_t c = 0; c < item.columns; c += block) {
        T* const to = columns + c * positions + n * of_sample * block;
        transpose(first + n * strides.sample + c * strides.channel, strides.channel, std::min(block, item.columns - c), of_sample, to,
                  block);
      }
    }
    return;
  }
  const T* const end = output + plan.geometry.batch * strides.sample;
  for (std::int64_t i = 0; i < positions; ++i) {
    const T* const from = first + i * strides.axis[2];
    for (std::int64_t c = 0; c < item.columns; c += simd::lanes<T>) {
      T* const to = columns + c / block * block * positions + i * block + c % block;
      if (end - from - c >= simd::lanes<T>) {
        simd::store(to, simd::load(from + c));
      } else {
        std::copy(from + c, end, to);
      }
    }
  }
}

/// Adds a box's products to an item's sums, blocks of (rows, columns).
template <class T>
void add_box(const Plan& plan, const Item& item, const Box& box, const T* source, const T* output, T* sums, std::byte* workspace) {
  const Part& part = item.part;
  const std::int64_t channel = item.group * plan.direction.channels + item.channel;
  T* const copy = reinterpret_cast<T*>(workspace + plan.window_place);
  for (std::int64_t i = 0; i < part.blocks; ++i) {
    const std::int64_t rows = part.window.rows(box);
    copy_window(part.window, box, plan.source, source, channel + part.begin(i), 0, rows, copy + i * part.window_elements);
  }
  auto* const positions = reinterpret_cast<std::int64_t*>(workspace + plan.positions_place);
  std::size_t count = 0;
  part.window.for_each_position(box, [&](std::int64_t offset) { positions[count++] = offset; });
  T* const columns = reinterpret_cast<T*>(workspace + plan.columns_place);
  if (plan.copies_columns) copy_columns(plan, item, box, output, columns);
  const T* const b = plan.copies_columns ? columns : output + plan.place_in_output(item, box);
  const std::int64_t next_block = plan.copies_columns ? box.positions() : 1;
  item.for_each_block(plan, [&](std::int64_t column, std::int64_t place) {
    const int vectors = plan.packed.vectors(column);
    add_outer_products(GatheredOuterProducts<T>{.positions = {positions, count},
                                                .rows = part.rows,
                                                .vectors = vectors,
                                                .a = copy,
                                                .b = b + (column - item.column) * next_block,
                                                .b_stride = plan.copies_columns ? product_columns<T> : plan.output.axis[2],
                                                .c = sums + place,
                                                .c_stride = vectors * simd::lanes<T>});
  });
}

/// An item's weights, the sums of `slices` partial sums, `stride` elements apart.
template <class T>
void unpack_item(const Plan& plan, const Item& item, const T* sums, std::int64_t slices, std::int64_t stride, T* weight) {
  item.for_each_block(plan, [&](std::int64_t column, std::int64_t place) {
    plan.packed.unpack_block<T>(item.part.weights, item.group, column, item.channel, sums + place, slices, stride, weight);
  });
}

}  // namespace

const char* weight_gradient_schedule(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  const Direction d = Direction::forward(g);
  if (has_small_groups(d, element_size)) return small_groups_schedule(d);
  return suits_winograd_weight_gradient(g, layouts, element_size) ? "in 4 x 4 tiles by Winograd's filtering" : "products over positions";
}

std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  if (g.batch == 0) return 0;
  if (has_small_groups(Direction::forward(g), element_size)) return small_groups_weight_gradient_scratch(g, layouts, element_size);
  if (suits_winograd_weight_gradient(g, layouts, element_size)) return winograd_weight_gradient_scratch(g);
  return Plan(g, layouts, Layout::contiguous, element_size).scratch();
}

template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                              std::span<std::byte> scratch) {
  if (g.batch == 0) return void(std::fill_n(weight.data, g.groups * g.out_channels * g.in_channels * product(g.kernel), T(0)));
  if (has_small_groups(Direction::forward(g), sizeof(T))) return small_groups_weight_gradient(g, output, input, weight, scratch);
  if constexpr (std::is_same_v<T, float>) {
    if (suits_winograd_weight_gradient(g, {input.place, output.place}, sizeof(T))) {
      return winograd_weight_gradient(g, output.data, input.data, weight, scratch);
    }
  }
  const Plan plan(g, {input.place, output.place}, weight.place, sizeof(T));
  T* const partial = scratch_part<T>(scratch, plan.partial_place);
  plan.work.run(scratch.subspan(plan.shared.bytes()), [&](std::int64_t index, std::byte* workspace) {
    const Item item(plan, index);
    T* const sums = plan.sliced() ? partial + index * plan.item_elements : reinterpret_cast<T*>(workspace + plan.sums_place);
    std::fill_n(sums, item.rows() * plan.packed.whole_vectors(item.columns), T(0));
    for (std::int64_t i = 0; i < plan.slices.length_of(item.slice); ++i) {
      add_box(plan, item, plan.boxes[plan.slices.begin(item.slice) + i], input.data, output.data, sums, workspace);
    }
    if (!plan.sliced()) unpack_item(plan, item, sums, 1, 0, weight.data);
  });
  if (!plan.sliced()) return;
  parallel_for(plan.parts(), 16384 / (plan.slices.count * plan.item_elements) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      unpack_item(plan, Item(plan, i), partial + i * plan.item_elements, plan.slices.count, plan.parts() * plan.item_elements, weight.data);
    }
  });
}

template void convolve_weight_gradient(const ConvolutionGeometry&, Image<const float>, Image<const float>, Image<float>,
                                       std::span<std::byte>);
template void convolve_weight_gradient(const ConvolutionGeometry&, Image<const double>, Image<const double>, Image<double>,
                                       std::span<std::byte>);

}  // namespace frit::ops
