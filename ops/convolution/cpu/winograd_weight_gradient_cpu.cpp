#include <algorithm>

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/cpu/packed_weight.h"
#include "frit/ops/convolution/cpu/winograd_cpu.h"
#include "frit/ops/convolution/cpu/winograd_transforms.h"
#include "frit/ops/cpu/run_product.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

using namespace winograd;

/// Tiles whose transforms are kept at a time: a block of their columns stays in the nearest cache, and all in a further one.
constexpr std::int64_t most_tiles = 240, most_bytes = 8 * 1024 * 1024;
/// Planes of those tiles at least, where several taps of the depth read each.
constexpr std::int64_t least_planes = 4;
/// Channels of an item of work, whose sums stay in a core's cache.
constexpr std::int64_t most_channels = 96;
/// With so many columns' blocks that read an element's inputs, and tiles, a core's cache had better hold these than some channels' sums,
/// of which there are so many floats at most then, 48 MiB, where slabs do not share them anyway.
constexpr std::int64_t many_tiles = 96, many_columns = 128, most_sums = 12 * 1024 * 1024;
/// The fewest tiles of a batch that pay, and bytes of the most scratch memory.
constexpr std::int64_t least_tiles = 12, most_scratch = 96 * 1024 * 1024;

/// Two axes and their samples are one volume and its planes.
bool is_flat(const ConvolutionGeometry& g) { return g.input[0] == 1 && g.output[0] == 1 && g.kernel[0] == 1 && g.padding[0] == 0; }

/// Planes of a volume of outputs, some rows of tiles in each, and the planes of inputs that they read.
struct Slab {
  std::int64_t volume, plane, planes, row, rows;
  std::int64_t input, inputs;
};

/// How the work is cut; a function of the sizes alone.
struct Plan {
  ConvolutionGeometry g;
  std::int64_t volumes, input_count, output_count, step, padding, dilation;  ///< a volume's planes, and the taps of its depth
  std::int64_t channels, columns, depths;                                    ///< columns: of the output's channels, whole vectors
  std::int64_t tile_columns, most_of_slab;
  EvenBlocks planes, rows;               ///< of tiles
  std::int64_t input_planes;             ///< of a slab, the most
  std::int64_t input_row, output_row;    ///< elements of a transformed tile's channels
  std::int64_t input_step, output_step;  ///< between the elements of a tile: lines of several fall on different cache sets
  EvenBlocks blocks, parts;              ///< of columns, and of channels: what one item of work sums
  bool by_element;                       ///< items of work are elements of tiles, of which all is summed, and not such sums
  ScratchParts shared;
  std::size_t inputs_place, outputs_place, sums_place, packed_place;
  WorkSplit work, transforms;  ///< transforms: of sums, where they are items of their own

  explicit Plan(const ConvolutionGeometry& geometry)
      : g(geometry),
        volumes(is_flat(g) ? 1 : g.batch),
        input_count(is_flat(g) ? g.batch : g.input[0]),
        output_count(is_flat(g) ? g.batch : g.output[0]),
        step(is_flat(g) ? 1 : g.stride[0]),
        padding(is_flat(g) ? 0 : g.padding[0]),
        dilation(g.dilation[0]),
        channels(g.in_channels),
        columns(round_up(g.out_channels, lanes)),
        depths(g.kernel[0]),
        tile_columns(tiles_of(g.output[2])),
        input_row(packed_stride(channels, sizeof(float))),
        output_row(packed_stride(columns, sizeof(float))),
        blocks(columns, product_columns<float>, product_columns<float>),
        parts(channels, most_channels, product_rows) {
    const auto tile_bytes = (input_row + output_row) * elements * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t most = std::clamp<std::int64_t>(most_bytes / tile_bytes, 1, most_tiles);
    const std::int64_t of_plane = tiles_of(g.output[1]) * tile_columns;
    planes = EvenBlocks(output_count, std::max(depths > 1 ? least_planes : 1, most / of_plane));
    rows = EvenBlocks(tiles_of(g.output[1]), std::max<std::int64_t>(1, most / (planes.size * tile_columns)));
    input_planes = std::min(input_count, (planes.size - 1) * step + (depths - 1) * dilation + 1);
    input_step = input_planes * rows.size * tile_columns * input_row + 16;
    output_step = planes.size * rows.size * tile_columns * output_row + 16;
    const std::int64_t all_sums = elements * depths * channels * columns;
    const bool holds_tiles = planes.size * rows.size * tile_columns >= many_tiles && all_sums <= most_sums;
    by_element = columns >= many_columns && (slabs() > 1 || holds_tiles);
    inputs_place = shared.add(elements * input_step, sizeof(float));
    outputs_place = shared.add(elements * output_step, sizeof(float));
    sums_place = shared.add(shares_sums() ? all_sums : 0, sizeof(float));
    packed_place = shared.add(depths * taps * taps * channels * columns, sizeof(float));
    const std::int64_t of_item = elements * parts.size * blocks.size, cost = of_item * planes.size * rows.size * tile_columns;
    work = by_element ? WorkSplit(elements, cost * items() / elements, 0)
                      : WorkSplit(items(), cost, shares_sums() ? 0 : static_cast<std::size_t>(of_item) * sizeof(float));
    if (shares_sums()) transforms = WorkSplit(items(), of_item, 0);
  }

  std::int64_t items() const { return depths * blocks.count * parts.count; }
  /// Else one item has all elements of its sums, in its thread's workspace.
  bool shares_sums() const { return by_element || slabs() > 1; }
  std::int64_t slabs() const { return volumes * planes.count * rows.count; }
  Slab slab(std::int64_t index) const {
    const std::int64_t r = index % rows.count, p = index / rows.count % planes.count;
    Slab slab{index / rows.count / planes.count, planes.begin(p), planes.length_of(p), rows.begin(r), rows.length_of(r), 0, 0};
    slab.input = std::clamp<std::int64_t>(input_of(slab.plane, 0), 0, input_count);
    const std::int64_t end = input_of(slab.plane + slab.planes - 1, depths - 1) + 1;
    slab.inputs = std::clamp<std::int64_t>(end, slab.input, input_count) - slab.input;
    return slab;
  }
  std::int64_t input_of(std::int64_t plane, std::int64_t depth) const { return plane * step + depth * dilation - padding; }
};

/// Where the elements of a tile lie in a channels-last plane; null outside it.
template <int size>
using Tile = std::array<const float*, size * size>;

template <int size>
Tile<size> tile_at(const float* plane, const ImageAxes& image, std::int64_t channels, std::int64_t row, std::int64_t column) {
  Tile<size> tile;
  for (int e = 0; e < size * size; ++e) {
    const std::int64_t y = row + e / size, x = column + e % size;
    const bool inside = y >= 0 && y < image[1] && x >= 0 && x < image[2];
    tile[static_cast<std::size_t>(e)] = inside ? plane + (y * image[2] + x) * channels : nullptr;
  }
  return tile;
}

/// A tile's transform, `step` between its elements, with zeros up to whole vectors of channels.
template <int size, class Transform>
void transform_tile(const Tile<size>& tile, std::int64_t channels, const Transform& transform, float* to, std::int64_t step) {
  for (std::int64_t c = 0; c < channels; c += lanes) {
    V square[size * size], result[elements];
    const std::int64_t left = channels - c;
    for (std::size_t e = 0; e < tile.size(); ++e) {
      square[e] = tile[e] == nullptr ? V{} : left >= lanes ? simd::load(tile[e] + c) : simd::load_first(tile[e] + c, left);
    }
    transform_square<size, edge>(square, result, transform);
    store_elements(result, to + c, step);
  }
}

/// The slab's inputs and gradients: (elements, planes, rows and columns of tiles, channels).
void transform_slab(const Plan& plan, const Slab& slab, const float* input, const float* output, float* inputs, float* factors) {
  const ConvolutionGeometry& g = plan.g;
  const std::int64_t of_inputs = slab.inputs * slab.rows;
  parallel_for(of_inputs + slab.planes * slab.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const bool is_input = i < of_inputs;
      const std::int64_t line = is_input ? i : i - of_inputs, row = (slab.row + line % slab.rows) * tile_outputs;
      const std::int64_t plane =
          line / slab.rows + (is_input ? slab.volume * plan.input_count + slab.input : slab.volume * plan.output_count + slab.plane);
      for (std::int64_t t = 0; t < plan.tile_columns; ++t) {
        const std::int64_t tile = line * plan.tile_columns + t;
        if (is_input) {
          const float* const from = input + plane * g.input[1] * g.input[2] * plan.channels;
          transform_tile<edge>(tile_at<edge>(from, g.input, plan.channels, row - g.padding[1], t * tile_outputs - g.padding[2]),
                               plan.channels, transform_input, inputs + tile * plan.input_row, plan.input_step);
        } else {
          const float* const from = output + plane * g.output[1] * g.output[2] * g.out_channels;
          transform_tile<tile_outputs>(tile_at<tile_outputs>(from, g.output, g.out_channels, row, t * tile_outputs), g.out_channels,
                                       transform_factors, factors + tile * plan.output_row, plan.output_step);
        }
      }
    }
  });
}

/// Some channels and a block of columns at one tap of the depth.
struct Sums {
  std::int64_t depth, column, width, channel, channels;

  Sums(const Plan& plan, std::int64_t item)
      : depth(item / plan.parts.count / plan.blocks.count),
        column(plan.blocks.begin(item / plan.parts.count % plan.blocks.count)),
        width(plan.blocks.length_of(item / plan.parts.count % plan.blocks.count)),
        channel(plan.parts.begin(item % plan.parts.count)),
        channels(plan.parts.length_of(item % plan.parts.count)) {}

  std::int64_t size() const { return channels * width; }
  /// Where those of all slabs are added up.
  std::int64_t place(const Plan& plan) const { return elements * ((depth * plan.columns + column) * plan.channels + channel * width); }
};

/// Adds the slab's products of an element of the tiles to its sums (channels, columns).
void add_products(const Plan& plan, const Slab& slab, const Sums& part, std::int64_t e, const float* inputs, const float* factors,
                  float* sums) {
  const std::int64_t tiles = slab.rows * plan.tile_columns;
  // Planes whose inputs follow each other are one product.
  const std::int64_t together = plan.step == 1 ? slab.planes : 1;
  for (std::int64_t done = 0; done < slab.planes; done += together) {
    const std::int64_t input = plan.input_of(slab.plane + done, part.depth);
    const std::int64_t before = std::max<std::int64_t>(0, slab.input - input);
    const std::int64_t planes = std::min(together, slab.input + slab.inputs - input) - before;
    if (planes <= 0) continue;
    add_outer_products(
        OuterProducts<float>{.positions = planes * tiles,
                             .rows = part.channels,
                             .vectors = static_cast<int>(part.width / lanes),
                             .a = inputs + e * plan.input_step + (input + before - slab.input) * tiles * plan.input_row + part.channel,
                             .a_stride = plan.input_row,
                             .b = factors + e * plan.output_step + (done + before) * tiles * plan.output_row + part.column,
                             .b_stride = plan.output_row,
                             .c = sums,
                             .c_stride = part.width});
  }
}

/// The gradients of the taps, as PackedWeight has them.
void transform_all_sums(const Plan& plan, const Sums& part, const float* sums, float* packed) {
  const std::int64_t tap_step = plan.channels * part.width;
  float* const to =
      packed + part.column * plan.depths * taps * taps * plan.channels + part.depth * taps * taps * tap_step + part.channel * part.width;
  for (std::int64_t k = 0; k < part.size(); k += lanes) {
    V square[elements], result[taps * taps];
    for (int e = 0; e < elements; ++e) square[e] = simd::load(sums + e * part.size() + k);
    transform_square<edge, taps>(square, result, transform_sums);
    for (int tap = 0; tap < taps * taps; ++tap) simd::store(to + tap * tap_step + k, result[tap]);
  }
}

TapRuns taps_of(const ConvolutionGeometry& g, const ImageStrides& weight) {
  std::vector<Tap> all;
  for (std::int64_t tap = 0; tap < product(g.kernel); ++tap) {
    all.push_back({0, tap / taps / taps * weight.axis[0] + tap / taps % taps * weight.axis[1] + tap % taps * weight.axis[2]});
  }
  return TapRuns(std::move(all), g.in_channels, g.in_channels);
}

}  // namespace

bool suits_winograd_weight_gradient(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size) {
  bool fits = tiles_suit(g, element_size) && ImageStrides(layouts.source, g.in_channels, g.input).channels_last();
  fits = fits && ImageStrides(layouts.output, g.out_channels, g.output).channels_last();
  const std::int64_t tiles = g.batch * g.output[0] * tiles_of(g.output[1]) * tiles_of(g.output[2]);
  return fits && tiles >= least_tiles && Plan(g).shared.bytes() <= most_scratch;
}

std::size_t winograd_weight_gradient_scratch(const ConvolutionGeometry& g) {
  const Plan plan(g);
  return plan.shared.bytes() + plan.work.scratch();
}

void winograd_weight_gradient(const ConvolutionGeometry& g, const float* output, const float* input, Image<float> weight,
                              std::span<std::byte> scratch) {
  const Plan plan(g);
  float* const inputs = scratch_part<float>(scratch, plan.inputs_place);
  float* const factors = scratch_part<float>(scratch, plan.outputs_place);
  float* const sums = scratch_part<float>(scratch, plan.sums_place);
  float* const packed = scratch_part<float>(scratch, plan.packed_place);
  const std::span<std::byte> own = scratch.subspan(plan.shared.bytes());
  for (std::int64_t i = 0; i < plan.slabs(); ++i) {
    const Slab slab = plan.slab(i);
    transform_slab(plan, slab, input, output, inputs, factors);
    const auto add = [&](const Sums& part, std::int64_t e, float* to) {
      if (i == 0) std::fill_n(to, part.size(), 0.0f);
      add_products(plan, slab, part, e, inputs, factors, to);
    };
    plan.work.run(own, [&](std::int64_t item, std::byte* workspace) {
      if (plan.by_element) {
        for (std::int64_t k = 0; k < plan.items(); ++k) {
          const Sums part(plan, k);
          add(part, item, sums + part.place(plan) + item * part.size());
        }
        return;
      }
      const Sums part(plan, item);
      float* const to = plan.shares_sums() ? sums + part.place(plan) : reinterpret_cast<float*>(workspace);
      for (std::int64_t e = 0; e < elements; ++e) add(part, e, to + e * part.size());
      if (!plan.shares_sums()) transform_all_sums(plan, part, to, packed);
    });
  }
  plan.transforms.run(own, [&](std::int64_t item, std::byte*) {
    const Sums part(plan, item);
    transform_all_sums(plan, part, sums + part.place(plan), packed);
  });
  const ImageStrides strides(weight.place, g.in_channels, g.kernel);
  PackedWeight(Direction::forward(g), strides, sizeof(float)).unpack(taps_of(g, strides), packed, weight.data);
}

}  // namespace frit::ops
