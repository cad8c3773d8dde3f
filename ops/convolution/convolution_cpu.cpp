#include "frit/ops/convolution/convolution_cpu.h"

#include <numeric>

#include "frit/ops/convolution/patches.h"
#include "frit/ops/cpu/block_product.h"

namespace frit::ops {
namespace {

/// Output channels and positions that one item of work computes, and rows of the patch matrix that it copies at a time.
constexpr std::int64_t most_rows = 128, most_depth = 128, least_positions = 256, most_positions = 1024;

/// One direction of a convolution: the product of a weight matrix and the patches of a source. Backwards, the outputs whose coordinates
/// have one remainder by the stride see the same taps, at neighbouring source elements: each remainder is a convolution of stride 1 of its
/// own, a phase, whose position j stands for the output j * output_step + phase. Forwards there is one phase.
struct Direction {
  const ConvolutionGeometry& geometry;
  bool back;
  std::int64_t channels, rows;  ///< of one group, in the source and in the output
  ImageAxes source, output;
  ImageAxes output_step, phases, grid;

  std::int64_t phase_count() const { return product(phases); }
};

Direction forward(const ConvolutionGeometry& g) {
  return {g, false, g.in_channels, g.out_channels, g.input, g.output, {1, 1, 1}, {1, 1, 1}, g.output};
}

Direction backward(const ConvolutionGeometry& g) {
  Direction d{g, true, g.out_channels, g.in_channels, g.output, g.input, g.stride, {}, {}};
  for (std::size_t i = 0; i < 3; ++i) {
    d.phases[i] = std::min(g.stride[i], g.input[i]);
    d.grid[i] = (g.input[i] + g.stride[i] - 1) / g.stride[i];
  }
  return d;
}

/// The taps k of one axis that a phase sees: those for which (phase + padding - k * dilation) is a multiple of the stride.
AxisTaps phase_taps(const ConvolutionGeometry& g, std::size_t axis, std::int64_t phase) {
  const std::int64_t common = std::gcd(g.stride[axis], g.dilation[axis]);
  AxisTaps taps{0, 1, 0, -g.dilation[axis] / common, 0, g.stride[axis] / common};
  for (std::int64_t k = 0; k < std::min(taps.tap_step, g.kernel[axis]); ++k) {
    const std::int64_t distance = phase + g.padding[axis] - k * g.dilation[axis];
    if (distance % g.stride[axis] != 0) continue;
    taps.first_tap = k;
    taps.offset = distance / g.stride[axis];
    taps.count = (g.kernel[axis] - k - 1) / taps.tap_step + 1;
    break;
  }
  return taps;
}

Patches phase_patches(const Direction& d, const ImageAxes& phase) {
  if (!d.back) return input_patches(d.geometry);
  Patches patches{d.source, d.grid, {}};
  for (std::size_t i = 0; i < 3; ++i) patches.taps[i] = phase_taps(d.geometry, i, phase[i]);
  return patches;
}

/// body(phase, patches, weights): `weights` is where the phase's matrix (groups, rows, channels, taps) begins; they follow each other.
template <class Body>
void for_each_phase(const Direction& d, const Body& body) {
  std::int64_t weights = 0;
  ImageAxes phase;
  for (phase[0] = 0; phase[0] < d.phases[0]; ++phase[0]) {
    for (phase[1] = 0; phase[1] < d.phases[1]; ++phase[1]) {
      for (phase[2] = 0; phase[2] < d.phases[2]; ++phase[2]) {
        const Patches patches = phase_patches(d, phase);
        body(phase, patches, weights);
        weights += d.geometry.groups * d.rows * d.channels * patches.taps_count();
      }
    }
  }
}

/// The weights (groups, channels, rows, kernel) as the matrices of all phases.
template <class T>
void pack_weights(const Direction& d, const T* weight, T* packed) {
  const ImageAxes& kernel = d.geometry.kernel;
  for_each_phase(d, [&](const ImageAxes&, const Patches& p, std::int64_t weights) {
    const std::int64_t depth = d.channels * p.taps_count();
    const auto kernel_index = [&](std::size_t axis, std::int64_t tap) { return p.taps[axis].first_tap + tap * p.taps[axis].tap_step; };
    parallel_for(d.geometry.groups * d.rows, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* to = packed + weights + row * depth;
        for (std::int64_t channel = 0; channel < d.channels; ++channel) {
          const T* from = weight + ((row / d.rows * d.channels + channel) * d.rows + row % d.rows) * product(kernel);
          for (std::int64_t td = 0; td < p.taps[0].count; ++td) {
            for (std::int64_t th = 0; th < p.taps[1].count; ++th) {
              for (std::int64_t tw = 0; tw < p.taps[2].count; ++tw) {
                *to++ = from[(kernel_index(0, td) * kernel[1] + kernel_index(1, th)) * kernel[2] + kernel_index(2, tw)];
              }
            }
          }
        }
      }
    });
  });
}

/// How the work is cut; a function of the sizes alone.
struct Plan {
  Direction direction;
  EvenBlocks rows;
  PositionBlocks blocks;
  bool through_buffer;          ///< a block's results do not lie side by side in the output
  std::size_t columns_bytes, packed_bytes = 0;
  WorkSplit work;

  Plan(const Direction& d, std::size_t element_size) : direction(d), rows(d.rows, most_rows) {
    const ConvolutionGeometry& g = d.geometry;
    const std::int64_t weights = g.groups * d.rows * d.channels * product(g.kernel);
    const std::int64_t depth = weights / (g.groups * d.rows * d.phase_count()) + 1;
    const std::int64_t positions = std::clamp(32768 / std::min(depth, most_depth), least_positions, most_positions);
    blocks = PositionBlocks(g.batch, product(d.grid), positions, 64 / static_cast<std::int64_t>(element_size));
    through_buffer = d.phase_count() > 1 || blocks.samples.size > 1;
    const std::int64_t columns_rows = std::min(most_depth, d.channels * product(g.kernel));
    columns_bytes = static_cast<std::size_t>(columns_rows * packed_stride(blocks.columns(), element_size)) * element_size;
    if (d.back) packed_bytes = (static_cast<std::size_t>(weights) * element_size + 63) / 64 * 64;
    const std::size_t buffer_bytes = through_buffer ? static_cast<std::size_t>(rows.size * blocks.columns()) * element_size : 0;
    const std::int64_t cost = rows.size * blocks.columns() * d.channels * product(g.kernel);
    work = WorkSplit(blocks.count() * g.groups * rows.count, cost, columns_bytes + buffer_bytes);
  }

  std::size_t scratch() const { return packed_bytes + work.scratch(); }
};

/// What one item of work computes: rows [row, row + rows) of a group's outputs at the positions of a block.
struct Item {
  PositionBlocks::Block block;
  std::int64_t group, row, rows;

  Item(const Plan& plan, std::int64_t index)
      : block(plan.blocks[index / plan.rows.count / plan.direction.geometry.groups]),
        group(index / plan.rows.count % plan.direction.geometry.groups),
        row(plan.rows.begin(index % plan.rows.count)),
        rows(plan.rows.length_of(index % plan.rows.count)) {}
};

/// Spreads a phase's results (rows, samples, positions) over the output.
template <class T>
void scatter(const Plan& plan, const Item& item, const ImageAxes& phase, const T* results, T* output) {
  const Direction& d = plan.direction;
  for (std::int64_t row = 0; row < item.rows; ++row) {
    for (std::int64_t sample = 0; sample < item.block.samples; ++sample, results += item.block.positions()) {
      const std::int64_t channel = item.group * d.rows + item.row + row;
      T* plane = output + ((item.block.sample + sample) * d.geometry.groups * d.rows + channel) * product(d.output);
      const auto scatter_run = [&](std::int64_t depth, std::int64_t height, std::int64_t width, std::int64_t count, std::int64_t done) {
        depth = depth * d.output_step[0] + phase[0];
        height = height * d.output_step[1] + phase[1];
        width = width * d.output_step[2] + phase[2];
        if (depth >= d.output[0] || height >= d.output[1]) return;
        T* to = plane + (depth * d.output[1] + height) * d.output[2];
        for (std::int64_t i = 0; i < count && width < d.output[2]; ++i, width += d.output_step[2]) to[width] = results[done + i];
      };
      for_each_run(d.grid, item.block.begin, item.block.end, scatter_run);
    }
  }
}

/// Rows [begin, end) of a block's patch matrix, the samples side by side, with zeros up to a whole vector.
template <class T>
void copy_columns(const Plan& plan, const Patches& patches, const Item& item, const T* source, std::int64_t begin, std::int64_t end, T* columns) {
  const Direction& d = plan.direction;
  const std::int64_t positions = item.block.positions(), stride = packed_stride(item.block.columns(), sizeof(T));
  for (std::int64_t sample = 0; sample < item.block.samples; ++sample) {
    const std::int64_t image = ((item.block.sample + sample) * d.geometry.groups + item.group) * d.channels;
    copy_patches(patches, source + image * product(d.source), begin, end, item.block.begin, item.block.end, columns + sample * positions, stride);
  }
  const std::int64_t padding = vector_padding(item.block.columns(), sizeof(T));
  for (std::int64_t row = 0; row < end - begin; ++row) {
    std::fill_n(columns + row * stride + item.block.columns(), padding, T(0));
  }
}

template <class T>
void compute_item(const Plan& plan, const Item& item, const T* source, const T* weight, const T* bias, T* output, std::byte* workspace) {
  const Direction& d = plan.direction;
  T* columns = reinterpret_cast<T*>(workspace);
  T* buffer = reinterpret_cast<T*>(workspace + plan.columns_bytes);
  const std::int64_t first_row = item.group * d.rows + item.row;
  const std::int64_t place = (item.block.sample * d.geometry.groups * d.rows + first_row) * product(d.output) + item.block.begin;
  for_each_phase(d, [&](const ImageAxes& phase, const Patches& patches, std::int64_t weights) {
    const std::int64_t depth = d.channels * patches.taps_count();
    std::int64_t begin = 0;
    do {
      const std::int64_t end = std::min(depth, begin + most_depth);
      copy_columns(plan, patches, item, source, begin, end, columns);
      multiply<T>({.rows = item.rows,
                   .columns = item.block.columns(),
                   .depth = end - begin,
                   .a = weight + weights + first_row * depth + begin,
                   .a_row_stride = depth,
                   .a_depth_stride = 1,
                   .b = columns,
                   .c = plan.through_buffer ? buffer : output + place,
                   .c_stride = plan.through_buffer ? item.block.columns() : product(d.output),
                   .accumulate = begin > 0,
                   .row_bias = bias == nullptr ? nullptr : bias + first_row});
      begin = end;
    } while (begin < depth);
    if (plan.through_buffer) scatter(plan, item, phase, buffer, output);
  });
}

template <class T>
void compute(const Plan& plan, const T* source, const T* weight, const T* bias, T* output, std::span<std::byte> scratch) {
  plan.work.run(scratch, [&](std::int64_t index, std::byte* workspace) {
    compute_item(plan, Item(plan, index), source, weight, bias, output, workspace);
  });
}

}  // namespace

std::size_t convolve_scratch(const ConvolutionGeometry& g, std::size_t element_size) { return Plan(forward(g), element_size).scratch(); }

template <class T>
void convolve(const ConvolutionGeometry& g, const T* input, const T* weight, const T* bias, T* output, std::span<std::byte> scratch) {
  compute(Plan(forward(g), sizeof(T)), input, weight, bias, output, scratch);
}

std::size_t convolve_back_scratch(const ConvolutionGeometry& g, std::size_t element_size) { return Plan(backward(g), element_size).scratch(); }

template <class T>
void convolve_back(const ConvolutionGeometry& g, const T* output, const T* weight, const T* bias, T* input, std::span<std::byte> scratch) {
  const Plan plan(backward(g), sizeof(T));
  T* packed = reinterpret_cast<T*>(scratch.data());
  pack_weights(plan.direction, weight, packed);
  compute(plan, output, packed, bias, input, scratch.subspan(plan.packed_bytes));
}

template void convolve(const ConvolutionGeometry&, const float*, const float*, const float*, float*, std::span<std::byte>);
template void convolve(const ConvolutionGeometry&, const double*, const double*, const double*, double*, std::span<std::byte>);
template void convolve_back(const ConvolutionGeometry&, const float*, const float*, const float*, float*, std::span<std::byte>);
template void convolve_back(const ConvolutionGeometry&, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
