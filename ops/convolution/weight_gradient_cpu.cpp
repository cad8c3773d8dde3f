#include <utility>

#include "frit/ops/convolution/convolution_cpu.h"
#include "frit/ops/convolution/direction.h"
#include "frit/ops/cpu/block_product.h"

namespace frit::ops {
namespace {

/// Rows of the patch matrix and channels of the other tensor that one item of work combines, over so many positions at a time.
constexpr std::int64_t most_rows = 64, most_columns = 128, most_positions = 256;
/// With fewer items than this the positions are cut into slices; the partial sums are added afterwards.
constexpr std::int64_t enough_items = 64;

/// Patches are a kernel's size larger than what they are taken from: they are better taken from the tensor with fewer channels, of the
/// input (forward) or of the output's gradient (backward).
Direction cheaper_direction(const ConvolutionGeometry& g) {
  return g.in_channels <= 2 * g.out_channels ? Direction::forward(g) : Direction::backward(g);
}

/// For each phase and group, the product of the source's patch matrix and the transposed matrix of the output's channels, both over the
/// phase's positions in the whole batch, is a part of the weight: (rows of the patch matrix, output channels). How the work is
/// cut depends on the sizes alone.
struct Plan {
  Direction direction;
  EvenBlocks rows, columns, slices;
  PositionBlocks blocks;
  bool sampled;  ///< a phase's outputs do not lie side by side
  std::size_t patch_bytes, column_bytes, partial_bytes;
  WorkSplit work;

  Plan(const Direction& d, std::size_t element_size)
      : direction(d),
        rows(d.most_depth(), most_rows),
        columns(d.rows, most_columns, 64 / static_cast<std::int64_t>(element_size)),
        blocks(d.geometry.batch, product(d.grid), most_positions, 64 / static_cast<std::int64_t>(element_size)),
        sampled(d.output != d.grid) {
    const std::int64_t parts = d.geometry.groups * rows.count * columns.count;
    const std::int64_t most_slices = std::max<std::int64_t>(1, enough_items / parts);
    slices = EvenBlocks(blocks.count(), std::max<std::int64_t>(1, (blocks.count() + most_slices - 1) / most_slices));
    const std::int64_t patch_stride = packed_stride(blocks.columns(), element_size);
    patch_bytes = static_cast<std::size_t>(std::max(rows.size, sampled ? columns.size : 0) * patch_stride) * element_size;
    column_bytes = static_cast<std::size_t>(blocks.columns() * packed_stride(columns.size, element_size)) * element_size;
    partial_bytes = static_cast<std::size_t>(slices.count * weights()) * element_size;
    const std::int64_t cost = rows.size * columns.size * blocks.columns() * slices.size * d.phase_count();
    work = WorkSplit(slices.count * parts, cost, patch_bytes + column_bytes);
  }

  std::int64_t weights() const {
    return direction.geometry.groups * direction.rows * direction.channels * product(direction.geometry.kernel);
  }
};

struct Item {
  std::int64_t slice, group, row_block, column, columns;

  Item(const Plan& plan, std::int64_t index)
      : slice(index / plan.columns.count / plan.rows.count / plan.direction.geometry.groups),
        group(index / plan.columns.count / plan.rows.count % plan.direction.geometry.groups),
        row_block(index / plan.columns.count % plan.rows.count),
        column(plan.columns.begin(index % plan.columns.count)),
        columns(plan.columns.length_of(index % plan.columns.count)) {}
};

/// Which output each position of a phase stands for, as patches of one element.
Patches sampled_positions(const Direction& d, const ImageAxes& phase) {
  Patches patches{d.output, d.grid, {}};
  for (std::size_t i = 0; i < 3; ++i) patches.taps[i] = {1, d.output_step[i], phase[i], 0, 0, 1};
  return patches;
}

/// The matrix (positions of the block, channels of the item) of the output. `buffer` is free for use.
template <class T>
void pack_output(const Plan& plan, const Item& item, const PositionBlocks::Block& block, const ImageAxes& phase, const T* output, T* buffer,
                 T* packed) {
  const Direction& d = plan.direction;
  const std::int64_t positions = block.positions(), plane = product(d.output), stride = packed_stride(positions, sizeof(T));
  for (std::int64_t s = 0; s < block.samples; ++s, packed += positions * packed_stride(item.columns, sizeof(T))) {
    const T* channels = output + (((block.sample + s) * d.geometry.groups + item.group) * d.rows + item.column) * plane;
    if (plan.sampled) {
      copy_patches(sampled_positions(d, phase), channels, 0, item.columns, block.begin, block.end, buffer, stride);
      pack(packed, {buffer, positions, item.columns, 1, stride});
    } else {
      pack(packed, {channels + block.begin, positions, item.columns, 1, plane});
    }
  }
}

/// Adds one block of positions to the item's sums, all phases of it while its elements are in the cache.
template <class T>
void add_block(const Plan& plan, const Item& item, const PositionBlocks::Block& block, bool accumulate, const T* source, const T* output,
               T* partial, std::byte* workspace) {
  const Direction& d = plan.direction;
  T* patch_rows = reinterpret_cast<T*>(workspace);
  T* packed = reinterpret_cast<T*>(workspace + plan.patch_bytes);
  const std::int64_t row = plan.rows.begin(item.row_block), stride = packed_stride(block.columns(), sizeof(T));
  for_each_phase(d, [&](const ImageAxes& phase, const Patches& patches, std::int64_t weights) {
    const std::int64_t depth = d.channels * patches.taps_count();
    const std::int64_t rows = std::min(plan.rows.size, depth - row);
    if (rows <= 0) return;
    pack_output(plan, item, block, phase, output, patch_rows, packed);
    for (std::int64_t s = 0; s < block.samples; ++s) {
      const T* image = source + ((block.sample + s) * d.geometry.groups + item.group) * d.channels * product(d.source);
      copy_patches(patches, image, row, row + rows, block.begin, block.end, patch_rows + s * block.positions(), stride);
    }
    multiply<T>({.rows = rows,
                 .columns = item.columns,
                 .depth = block.columns(),
                 .a = patch_rows,
                 .a_row_stride = stride,
                 .a_depth_stride = 1,
                 .b = packed,
                 .c = partial + weights + (item.group * depth + row) * d.rows + item.column,
                 .c_stride = d.rows,
                 .accumulate = accumulate});
  });
}

/// Adds the slices in their order and puts each sum in its place in the weight. Taps that no phase sees are multiplied with padding only.
template <class T>
void add_slices(const Plan& plan, const T* partial, T* weight) {
  const Direction& d = plan.direction;
  const std::int64_t kernel = product(d.geometry.kernel);
  if (d.back) std::fill_n(weight, plan.weights(), T(0));
  for_each_phase(d, [&](const ImageAxes&, const Patches& patches, std::int64_t weights) {
    const std::int64_t taps = patches.taps_count(), depth = d.channels * taps;
    // Both orders of a weight: (group, channel, row) backwards, (group, row, channel) forwards.
    const std::int64_t channel_step = d.back ? d.rows : 1, row_step = d.back ? 1 : d.channels;
    parallel_for(d.geometry.groups * depth, 4096 / d.rows + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t group = i / depth, channel = i % depth / taps;
        T* to = weight + (group * d.channels * d.rows + channel * channel_step) * kernel + kernel_index(d, patches, i % taps);
        for (std::int64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (std::int64_t slice = 0; slice < plan.slices.count; ++slice) {
            sum += static_cast<double>(partial[slice * plan.weights() + weights + i * d.rows + row]);
          }
          to[row * row_step * kernel] = static_cast<T>(sum);
        }
      }
    });
  });
}

}  // namespace

std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, std::size_t element_size) {
  const Plan plan(cheaper_direction(g), element_size);
  return plan.work.scratch() + plan.partial_bytes;
}

template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, const T* output, const T* input, T* weight, std::span<std::byte> scratch) {
  const Plan plan(cheaper_direction(g), sizeof(T));
  if (plan.direction.back) std::swap(input, output);
  T* partial = reinterpret_cast<T*>(scratch.data() + plan.work.scratch());
  plan.work.run(scratch, [&](std::int64_t index, std::byte* workspace) {
    const Item item(plan, index);
    for (std::int64_t i = 0; i < plan.slices.length_of(item.slice); ++i) {
      const PositionBlocks::Block block = plan.blocks[plan.slices.begin(item.slice) + i];
      add_block(plan, item, block, i > 0, input, output, partial + item.slice * plan.weights(), workspace);
    }
  });
  add_slices(plan, partial, weight);
}

template void convolve_weight_gradient(const ConvolutionGeometry&, const float*, const float*, float*, std::span<std::byte>);
template void convolve_weight_gradient(const ConvolutionGeometry&, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
