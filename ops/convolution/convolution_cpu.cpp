#include "frit/ops/convolution/convolution_cpu.h"

#include "frit/ops/convolution/direction.h"
#include "frit/ops/cpu/block_product.h"

namespace frit::ops {
namespace {

/// Output channels and positions that one item of work computes, and rows and elements of the patch matrix that it copies at a time.
constexpr std::int64_t most_rows = 128, most_depth = 128, most_block = 32768, least_positions = 256, most_positions = 1024;

/// The weights (groups, channels, rows, kernel) as the matrices (groups, rows, channels, taps) of all phases.
template <class T>
void pack_weights(const Direction& d, const T* weight, T* packed) {
  const std::int64_t kernel = product(d.geometry.kernel);
  for_each_phase(d, [&](const ImageAxes&, const Patches& patches, std::int64_t weights) {
    const std::int64_t taps = patches.taps_count(), depth = d.channels * taps;
    parallel_for(d.geometry.groups * d.rows, 16384 / (depth + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* from = weight + (i / d.rows * d.channels * d.rows + i % d.rows) * kernel;
        T* to = packed + weights + i * depth;
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const T* tap_from = from + kernel_index(d, patches, tap);
          for (std::int64_t channel = 0; channel < d.channels; ++channel) to[channel * taps + tap] = tap_from[channel * d.rows * kernel];
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
  bool through_buffer;  ///< a block's results do not lie side by side in the output
  std::size_t columns_bytes, packed_bytes = 0;
  WorkSplit work;

  Plan(const Direction& d, std::size_t element_size, const Finish& finish = {}) : direction(d), rows(d.rows, most_rows) {
    const std::int64_t groups = d.geometry.groups, depth = std::min(most_depth, d.most_depth());
    const std::int64_t results = rows.size * d.phases[2];  // of one position, in the buffer
    std::int64_t positions = std::clamp(most_block / depth, least_positions, most_positions);
    if (d.phase_count() > 1) positions = std::clamp<std::int64_t>(2 * most_block / results, 16, positions);
    blocks = PositionBlocks(d.geometry.batch, product(d.grid), positions, 64 / static_cast<std::int64_t>(element_size));
    through_buffer = d.phase_count() > 1 || blocks.samples.size > 1;
    columns_bytes = static_cast<std::size_t>(depth * packed_stride(blocks.columns(), element_size)) * element_size;
    const std::int64_t weights = groups * d.rows * d.channels * product(d.geometry.kernel);
    if (d.back) packed_bytes = (static_cast<std::size_t>(weights) * element_size + 63) / 64 * 64;
    const std::int64_t buffer = through_buffer ? d.phases[2] * rows.size * blocks.columns() : 0;
    const std::int64_t cost = rows.size * blocks.columns() * d.most_depth() * d.phase_count();
    const std::size_t own_bytes = columns_bytes + static_cast<std::size_t>(buffer) * element_size;
    work = WorkSplit(blocks.count() * groups * rows.count, cost, std::max(own_bytes, finish.workspace_bytes));
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

/// to[2 i] = even[i] and to[2 i + 1] = odd[i], `size` elements in all, which are two vectors or more.
template <class T>
void interleave_two(const T* even, const T* odd, std::int64_t size, T* to) {
  constexpr std::int64_t n = simd::lanes<T>;
  const std::int64_t pairs = size / 2;
  for (std::int64_t i = 0; i < pairs; i += n) {
    const std::int64_t place = std::min(i, pairs - n);
    const auto [low, high] = simd::zip<T>(simd::load(even + place), simd::load(odd + place));
    simd::store(to + 2 * place, low);
    simd::store(to + 2 * place + n, high);
  }
  if (size % 2 != 0) to[size - 1] = even[pairs];
}

/// to[i * ways + w] = from[w * stride + i], `size` elements in all.
template <class T>
void interleave(const T* from, std::int64_t stride, std::int64_t ways, std::int64_t size, T* to) {
  if (ways == 1) return copy_run(from, size, to);
  if (ways == 2 && size >= 2 * simd::lanes<T>) return interleave_two(from, from + stride, size, to);
  for (std::int64_t way = 0; way < std::min(ways, size); ++way) {
    const T* source = from + way * stride;
    for (std::int64_t i = way; i < size; i += ways) to[i] = *source++;
  }
}

/// Spreads the results (phases of the last axis, rows, samples, positions) of all phases that share the other axes over the output.
template <class T>
void scatter(const Plan& plan, const Item& item, const ImageAxes& phase, const T* results, T* output) {
  const Direction& d = plan.direction;
  const std::int64_t stride = item.rows * item.block.columns();
  for (std::int64_t row = 0; row < item.rows; ++row) {
    for (std::int64_t sample = 0; sample < item.block.samples; ++sample, results += item.block.positions()) {
      const std::int64_t channel = item.group * d.rows + item.row + row;
      T* plane = output + ((item.block.sample + sample) * d.geometry.groups * d.rows + channel) * product(d.output);
      const auto scatter_run = [&](std::int64_t j, std::int64_t k, std::int64_t l, std::int64_t count, std::int64_t done) {
        const std::int64_t depth = j * d.output_step[0] + phase[0], height = k * d.output_step[1] + phase[1], width = l * d.output_step[2];
        if (depth >= d.output[0] || height >= d.output[1]) return;
        const std::int64_t size = std::min(count * d.output_step[2], d.output[2] - width);
        interleave(results + done, stride, d.output_step[2], size, plane + (depth * d.output[1] + height) * d.output[2] + width);
      };
      for_each_run(d.grid, item.block.begin, item.block.end, scatter_run);
    }
  }
}

/// Rows [begin, end) of a block's patch matrix, the samples side by side, with zeros up to a whole vector.
template <class T>
void copy_columns(const Plan& plan, const Patches& patches, const Item& item, const T* source, std::int64_t begin, std::int64_t end,
                  T* columns) {
  const Direction& d = plan.direction;
  const std::int64_t positions = item.block.positions(), stride = packed_stride(item.block.columns(), sizeof(T));
  for (std::int64_t sample = 0; sample < item.block.samples; ++sample) {
    const std::int64_t image = ((item.block.sample + sample) * d.geometry.groups + item.group) * d.channels;
    copy_patches(patches, source + image * product(d.source), begin, end, item.block.begin, item.block.end, columns + sample * positions,
                 stride);
  }
  const std::int64_t padding = vector_padding(item.block.columns(), sizeof(T));
  for (std::int64_t row = 0; row < end - begin; ++row) {
    std::fill_n(columns + row * stride + item.block.columns(), padding, T(0));
  }
}

/// Of the elements of the output that an item has computed, forwards.
void finish_item(const Plan& plan, const Item& item, const Finish& finish, std::byte* workspace) {
  const Direction& d = plan.direction;
  const std::int64_t plane = product(d.output), positions = item.block.positions(), step = d.geometry.groups * d.rows * plane;
  const std::int64_t first = item.block.sample * step + (item.group * d.rows + item.row) * plane + item.block.begin;
  if (positions == plane) return finish.run({first, item.block.samples, step, item.rows * plane}, workspace);
  for (std::int64_t sample = 0; sample < item.block.samples; ++sample) {
    finish.run({first + sample * step, item.rows, plane, positions}, workspace);
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
    T* results = plan.through_buffer ? buffer + phase[2] * item.rows * item.block.columns() : output + place;
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
                   .c = results,
                   .c_stride = plan.through_buffer ? item.block.columns() : product(d.output),
                   .accumulate = begin > 0,
                   .row_bias = bias == nullptr ? nullptr : bias + first_row});
      begin = end;
    } while (begin < depth);
    if (plan.through_buffer && phase[2] + 1 == d.phases[2]) scatter(plan, item, phase, buffer, output);
  });
}

template <class T>
void compute(const Plan& plan, const T* source, const T* weight, const T* bias, T* output, std::span<std::byte> scratch,
             const Finish& finish = {}) {
  plan.work.run(scratch, [&](std::int64_t index, std::byte* workspace) {
    const Item item(plan, index);
    compute_item(plan, item, source, weight, bias, output, workspace);
    if (finish.run) finish_item(plan, item, finish, workspace);
  });
}

}  // namespace

std::size_t convolve_scratch(const ConvolutionGeometry& g, std::size_t element_size, const Finish& finish) {
  return Plan(Direction::forward(g), element_size, finish).scratch();
}

template <class T>
void convolve(const ConvolutionGeometry& g, const T* input, const T* weight, const T* bias, T* output, std::span<std::byte> scratch,
              const Finish& finish) {
  compute(Plan(Direction::forward(g), sizeof(T), finish), input, weight, bias, output, scratch, finish);
}

std::size_t convolve_back_scratch(const ConvolutionGeometry& g, std::size_t element_size) {
  return Plan(Direction::backward(g), element_size).scratch();
}

template <class T>
void convolve_back(const ConvolutionGeometry& g, const T* output, const T* weight, const T* bias, T* input, std::span<std::byte> scratch) {
  const Plan plan(Direction::backward(g), sizeof(T));
  T* packed = reinterpret_cast<T*>(scratch.data());
  pack_weights(plan.direction, weight, packed);
  compute(plan, output, packed, bias, input, scratch.subspan(plan.packed_bytes));
}

template void convolve(const ConvolutionGeometry&, const float*, const float*, const float*, float*, std::span<std::byte>, const Finish&);
template void convolve(const ConvolutionGeometry&, const double*, const double*, const double*, double*, std::span<std::byte>,
                       const Finish&);
template void convolve_back(const ConvolutionGeometry&, const float*, const float*, const float*, float*, std::span<std::byte>);
template void convolve_back(const ConvolutionGeometry&, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
