#include "frit/ops/convolution/cpu/convolution_plan.h"

#include <algorithm>

#include "frit/ops/cpu/bfloat_product.h"

namespace frit::ops {
namespace {

/// Positions that one item of work computes, and bytes of their windows and results, which stay in a core's cache.
constexpr std::int64_t most_positions = 256, least_positions = 96, most_item_bytes = 256 * 1024;
/// With fewer items than this, each computes a part of the columns only, but so many that its window is worth a copy, if there is one.
constexpr std::int64_t enough_items = 16, least_columns = 64;
/// Channels of small groups that an item computes one group after the other, so that it has whole lines of the result.
constexpr std::int64_t joined_channels = 64;
/// From so many columns on there are items enough without a cut through few positions, and each weight is brought into order where it is
/// read.
constexpr std::int64_t many_columns = 512;
/// Elements that are summed in one accumulator before they are added to the result: their weights stay in the nearest cache.
constexpr std::int64_t most_depth = 256, most_bfloat_depth = 512;
/// To read a weight from memory takes as long as so many products with it.
constexpr std::int64_t products_of_read = 16;
/// Rows of so many positions are worth tiles of their own.
constexpr std::int64_t least_sliding_row = 2 * product_rows;

std::int64_t block_columns(std::size_t element_size) {
  return product_vectors * simd::vector_bytes / static_cast<std::int64_t>(element_size);
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(const Direction& d, ImageLayouts layouts, ImagePlace weight_place, std::size_t element_size,
                                 const Finish& finish)
    : direction(d),
      source(layouts.source, d.geometry.groups * d.channels, d.source),
      output(layouts.output, d.geometry.groups * d.rows, d.output),
      weight(weight_place, d.geometry.in_channels, d.geometry.kernel),
      numbers(layouts.output.layout, d.geometry.groups * d.rows, d.output),
      boxes(d.geometry.batch, d.grid, positions_of_item(element_size)),
      groups(groups_of_item()),
      window(d, source, boxes.largest(), copied_pixel(element_size)),
      columns(d.rows, columns_of_item(size_of_sums(element_size)), block_columns(size_of_sums(element_size))),
      packed(d, weight, size_of_sums(element_size)),
      bfloat(in_bfloat(element_size)) {
  std::int64_t depths = 0, most_taps = 0;
  for_each_phase(d, [&](const ImageAxes& phase, const Taps& axes) {
    phases.push_back({phase,
                      bfloat ? TapRuns(axes, window, weight, most_bfloat_depth, bfloat_step) : TapRuns(axes, window, weight, most_depth),
                      weights});
    most_taps = std::max(most_taps, phases.back().taps.depth);
    weights += packed.elements(phases.back().taps);
    const std::vector<Run>& runs = phases.back().taps.runs;
    phases.back().slides = element_size == sizeof(float) && packed.vectors(0) == 1 && d.grid[2] >= least_sliding_row &&
                           std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
                             return run.length == SlidingProduct<float>::taps * window.axis[2] * window.reach.step[2];
                           });
    depths += phases.back().taps.depth;
  });
  through_buffer = !writes_to_output(d, output, element_size);
  spread = !through_buffer && (d.output != d.grid || phases.size() > 1);
  const Box largest = boxes.largest();
  const std::size_t sum_size = size_of_sums(element_size);
  bias_place = shared.add(d.geometry.groups * packed.columns(), sum_size);
  const std::int64_t copied = window.copied ? window.elements(largest) : 0;
  windows_place = shared.add(shares_windows() ? boxes.count() * d.geometry.groups * copied : 0, element_size);
  window_place = own.add(shares_windows() ? 0 : copied, element_size);
  buffer_place = own.add(through_buffer ? largest.positions() * buffer_stride(columns.size) : 0, sum_size);
  positions_place = own.add(largest.positions() * (spread ? 2 : 1), sizeof(void*));
  places_place = own.add(spread ? largest.positions() * 2 : 0, sizeof(std::int64_t));
  weights_place = own.add(packs_in_parts() ? most_taps * block_columns(element_size) : 0, element_size);
  const std::int64_t cost = std::max(largest.positions(), products_of_read) * groups * columns.size * depths;
  work = WorkSplit(boxes.count() * (d.geometry.groups / groups) * columns.count, cost, std::max(own.bytes(), finish.workspace_bytes));
}

std::int64_t ConvolutionPlan::buffer_stride(std::int64_t item_columns) const {
  return packed.whole_vectors((groups - 1) * direction.rows + packed.whole_vectors(item_columns));
}

std::int64_t ConvolutionPlan::positions_of_item(std::size_t element_size) const {
  std::int64_t most = most_positions;
  const auto bytes = [&] {
    const Box box = Boxes(direction.geometry.batch, direction.grid, most).largest();
    std::int64_t elements = box.samples * direction.channels;
    const Reach reach(direction);
    for (std::size_t i = 0; i < 3; ++i) elements *= (box.size[i] - 1) * reach.step[i] + reach.size[i];
    return elements * static_cast<std::int64_t>(element_size);
  };
  const std::int64_t all = direction.geometry.batch * product(direction.grid);
  if (all <= most_positions && direction.rows >= many_columns) return most;
  while (most > least_positions && (bytes() > most_item_bytes || all / most < enough_items)) most = most * 3 / 4;
  return most;
}

std::int64_t ConvolutionPlan::groups_of_item() const {
  const std::int64_t all = direction.geometry.groups;
  if (direction.phase_count() > 1) return 1;  // the window of a group serves all phases
  std::int64_t most = std::clamp<std::int64_t>(joined_channels / std::max<std::int64_t>(1, direction.rows), 1, all);
  most = std::min(most, std::max<std::int64_t>(1, boxes.count() * all / enough_items));
  while (all % most != 0) --most;
  return most;
}

/// 0 if positions lie well as they are, or as they are copied in any case.
std::int64_t ConvolutionPlan::copied_pixel(std::size_t element_size) const {
  const Reach reach(direction);
  const bool lies_ready = source.channels_last() && reach.inside(direction);
  const std::int64_t pixel = lies_ready ? source.axis[2] * reach.step[2] : direction.channels;
  if (!rows_collide(pixel * static_cast<std::int64_t>(element_size)) || direction.rows < least_columns) return 0;
  return packed_stride(direction.channels, element_size);
}

/// All of a group, or so many that there are enough items.
std::int64_t ConvolutionPlan::columns_of_item(std::size_t element_size) const {
  const std::int64_t block = block_columns(element_size);
  const std::int64_t least = window.copied ? least_columns : block;
  const std::int64_t items = std::max<std::int64_t>(1, boxes.count() * direction.geometry.groups);
  const std::int64_t most_parts = groups > 1 ? 1 : std::max<std::int64_t>(1, direction.rows / least);
  const std::int64_t parts = std::clamp<std::int64_t>(enough_items / items, 1, most_parts);
  return ((direction.rows + parts - 1) / parts + block - 1) / block * block;
}

ConvolutionItem::ConvolutionItem(const ConvolutionPlan& plan, std::int64_t index) : channels(plan.groups * plan.direction.rows) {
  column = plan.columns.begin(index % plan.columns.count), columns = plan.columns.length_of(index % plan.columns.count);
  index /= plan.columns.count;
  const std::int64_t blocks = plan.direction.geometry.groups / plan.groups;
  group = index % blocks * plan.groups;
  box_index = index / blocks;
  box = plan.boxes[box_index];
  if (plan.groups == 1) channels = columns;
}

}  // namespace frit::ops
