#include "frit/ops/convolution/convolution_cpu.h"
#include "frit/ops/convolution/patches.h"
#include "frit/ops/cpu/block_product.h"

namespace frit::ops {
namespace {

/// Weights of one output channel (rows) and output channels (columns) that one item of work sums, over so many positions at a time.
constexpr std::int64_t most_rows = 64, most_columns = 128, most_positions = 256;
/// With fewer items than this the positions are cut into slices; the partial sums are added afterwards.
constexpr std::int64_t enough_items = 64;

/// The transposed gradient (group, weights of one output channel, output channels) is the product of the input's patch matrix and the
/// transposed output gradient, both over the positions of the whole batch. How the work is cut depends on the sizes alone.
struct Plan {
  const ConvolutionGeometry& geometry;
  EvenBlocks rows, columns, slices;
  PositionBlocks blocks;
  std::size_t patch_bytes, partial_bytes;
  WorkSplit work;

  Plan(const ConvolutionGeometry& g, std::size_t element_size)
      : geometry(g),
        rows(g.in_channels * product(g.kernel), most_rows),
        columns(g.out_channels, most_columns, 64 / static_cast<std::int64_t>(element_size)),
        blocks(g.batch, product(g.output), most_positions, 64 / static_cast<std::int64_t>(element_size)) {
    const std::int64_t parts = g.groups * rows.count * columns.count;
    const std::int64_t most_slices = std::max<std::int64_t>(1, enough_items / parts);
    slices = EvenBlocks(blocks.count(), std::max<std::int64_t>(1, (blocks.count() + most_slices - 1) / most_slices));
    patch_bytes = static_cast<std::size_t>(rows.size * packed_stride(blocks.columns(), element_size)) * element_size;
    const std::size_t gradient_bytes = static_cast<std::size_t>(blocks.columns() * packed_stride(columns.size, element_size)) * element_size;
    partial_bytes = static_cast<std::size_t>(slices.count * weights()) * element_size;
    work = WorkSplit(slices.count * parts, rows.size * columns.size * blocks.columns() * slices.size, patch_bytes + gradient_bytes);
  }

  std::int64_t weights() const { return geometry.groups * rows.length * columns.length; }
};

/// The sums over one slice of the positions of one block of one group's weights.
template <class T>
void compute_item(const Plan& plan, std::int64_t item, const T* output, const T* input, T* partial, std::byte* workspace) {
  const ConvolutionGeometry& g = plan.geometry;
  const std::int64_t column_block = item % plan.columns.count, row_block = item / plan.columns.count % plan.rows.count;
  const std::int64_t group = item / plan.columns.count / plan.rows.count % g.groups;
  const std::int64_t slice = item / plan.columns.count / plan.rows.count / g.groups;
  const std::int64_t row = plan.rows.begin(row_block), rows = plan.rows.length_of(row_block);
  const std::int64_t column = plan.columns.begin(column_block), columns = plan.columns.length_of(column_block);
  const std::int64_t input_plane = product(g.input), output_plane = product(g.output);
  const Patches patches = input_patches(g);
  T* patch_rows = reinterpret_cast<T*>(workspace);
  T* gradient = reinterpret_cast<T*>(workspace + plan.patch_bytes);

  for (std::int64_t i = 0; i < plan.slices.length_of(slice); ++i) {
    const PositionBlocks::Block block = plan.blocks[plan.slices.begin(slice) + i];
    const std::int64_t positions = block.positions(), patch_stride = packed_stride(block.columns(), sizeof(T));
    for (std::int64_t s = 0; s < block.samples; ++s) {
      const std::int64_t sample = (block.sample + s) * g.groups + group;
      copy_patches(patches, input + sample * g.in_channels * input_plane, row, row + rows, block.begin, block.end, patch_rows + s * positions,
                   patch_stride);
      const T* channels = output + (sample * g.out_channels + column) * output_plane + block.begin;
      pack(gradient + s * positions * packed_stride(columns, sizeof(T)), {channels, positions, columns, 1, output_plane});
    }
    multiply<T>({.rows = rows,
                 .columns = columns,
                 .depth = block.columns(),
                 .a = patch_rows,
                 .a_row_stride = patch_stride,
                 .a_depth_stride = 1,
                 .b = gradient,
                 .c = partial + slice * plan.weights() + (group * plan.rows.length + row) * plan.columns.length + column,
                 .c_stride = plan.columns.length,
                 .accumulate = i > 0});
  }
}

/// Adds the slices in their order and turns (rows, columns) of each group into the weight's (columns, rows).
template <class T>
void add_slices(const Plan& plan, const T* partial, T* weight) {
  const std::int64_t rows = plan.rows.length, columns = plan.columns.length;
  parallel_for(plan.geometry.groups * columns, std::max<std::int64_t>(1, 16384 / rows), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* from = partial + i / columns * rows * columns + i % columns;
      for (std::int64_t row = 0; row < rows; ++row) {
        double sum = 0;
        for (std::int64_t slice = 0; slice < plan.slices.count; ++slice) {
          sum += static_cast<double>(from[slice * plan.weights() + row * columns]);
        }
        weight[i * rows + row] = static_cast<T>(sum);
      }
    }
  });
}

}  // namespace

std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, std::size_t element_size) {
  const Plan plan(g, element_size);
  return plan.work.scratch() + plan.partial_bytes;
}

template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, const T* output, const T* input, T* weight, std::span<std::byte> scratch) {
  const Plan plan(g, sizeof(T));
  T* partial = reinterpret_cast<T*>(scratch.data() + plan.work.scratch());
  plan.work.run(scratch, [&](std::int64_t item, std::byte* workspace) { compute_item(plan, item, output, input, partial, workspace); });
  add_slices(plan, partial, weight);
}

template void convolve_weight_gradient(const ConvolutionGeometry&, const float*, const float*, float*, std::span<std::byte>);
template void convolve_weight_gradient(const ConvolutionGeometry&, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
