#include "frit/ops/convolution/cpu/winograd_cpu.h"

#include <algorithm>

#include "frit/ops/convolution/cpu/packed_weight.h"
#include "frit/ops/convolution/cpu/winograd_transforms.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

using namespace winograd;

/// Tiles that one item of work computes, fewer items than which compute a part of the channels each, and the fewest of a sample that pay.
constexpr std::int64_t most_tiles = 24, enough_items = 16, least_tiles = 12;
constexpr std::int64_t least_channels = 16, most_depth = 256;
/// Channels whose weights are transformed at a time.
constexpr std::int64_t most_weight_channels = 32;

/// Some planes of the output, samples' planes in their order, and in each the same tiles.
struct Item {
  std::int64_t plane, planes, row, rows, tile_column, tile_columns;
  std::int64_t column, columns;  ///< the output's channels

  std::int64_t tiles_of_plane() const { return rows * tile_columns; }
  std::int64_t tiles() const { return planes * tiles_of_plane(); }
};

/// How the work is cut; a function of the sizes and layouts alone.
struct Plan {
  Direction direction;
  ImageStrides source, weight;
  EvenBlocks planes, rows, tile_columns, columns;
  Window window;
  TapRuns all_taps, depth_taps;  ///< of the weight, and of a transformed tile: only the depth's
  PackedWeight packed;
  std::int64_t most, depths;  ///< tiles of an item, and taps along the depth
  ScratchParts own;           ///< scratch memory of each thread
  std::size_t window_place, inputs_place, products_place;
  WorkSplit work;

  Plan(const Direction& d, Layout source_layout, Layout weight_layout, const Finish& finish)
      : direction(d),
        source(source_layout, d.channels, d.source),
        weight(weight_layout, d.geometry.in_channels, d.geometry.kernel),
        planes(d.geometry.batch * d.output[0], std::max<std::int64_t>(1, most_tiles / (tiles_of(d.output[1]) * tiles_of(d.output[2])))),
        rows(tiles_of(d.output[1]), std::max<std::int64_t>(1, most_tiles / tiles_of(d.output[2]))),
        tile_columns(tiles_of(d.output[2]), most_tiles),
        columns(d.rows, columns_of_item(), product_columns<float>),
        window(d, source, largest_box(), /*copies=*/true),
        all_taps(d.taps({}), window, weight, most_depth),
        depth_taps(taps_of_depth(), d.channels, most_depth),
        packed(d, weight, sizeof(float)),
        most(planes.size * rows.size * tile_columns.size),
        depths(d.geometry.kernel[0]) {
    window_place = own.add(window.elements(largest_box()), sizeof(float));
    inputs_place = own.add(elements * input_step(), sizeof(float));
    products_place = own.add(elements * product_step(), sizeof(float));
    const std::int64_t cost = most * elements * columns.size * depths * d.channels;
    work = WorkSplit(planes.count * rows.count * tile_columns.count * columns.count, cost, std::max(own.bytes(), finish.workspace_bytes));
  }

  std::int64_t depth() const { return depths * direction.channels; }
  /// Between the elements of a tile, of its weights, inputs and products: lines of several fall on different cache sets.
  std::int64_t weight_step() const { return depth() * direction.rows + 16; }
  std::int64_t input_step() const { return most * depth() + 16; }
  std::int64_t product_step() const { return most * columns.size + 16; }

  Item item(std::int64_t index) const {
    const std::int64_t c = index % columns.count, w = index / columns.count % tile_columns.count;
    const std::int64_t r = index / columns.count / tile_columns.count % rows.count,
                       p = index / columns.count / tile_columns.count / rows.count;
    return {planes.begin(p),       planes.length_of(p),       rows.begin(r),    rows.length_of(r),
            tile_columns.begin(w), tile_columns.length_of(w), columns.begin(c), columns.length_of(c)};
  }
  /// The positions of an item's tiles in one plane, whole tiles.
  Box box(std::int64_t plane, const Item& item) const {
    return {plane / direction.output[0],
            1,
            {plane % direction.output[0], item.row * outputs, item.tile_column * outputs},
            {1, item.rows * outputs, item.tile_columns * outputs}};
  }

 private:
  Box largest_box() const { return box(0, {0, 1, 0, rows.size, 0, tile_columns.size, 0, 0}); }
  std::int64_t columns_of_item() const {
    const std::int64_t items = std::max<std::int64_t>(1, planes.count * rows.count * tile_columns.count);
    const std::int64_t parts = std::max<std::int64_t>(1, enough_items / items);
    return ((direction.rows + parts - 1) / parts + product_columns<float> - 1) / product_columns<float> * product_columns<float>;
  }
  std::vector<Tap> taps_of_depth() const {
    std::vector<Tap> result;
    const std::int64_t tiles = planes.size * rows.size * tile_columns.size;
    for (std::int64_t k = 0; k < direction.geometry.kernel[0]; ++k) result.push_back({k * tiles * direction.channels, 0});
    return result;
  }
};

/// The weights of each element of a tile: (elements, blocks of columns: depth taps, channels, columns).
void transform_weights(const Plan& plan, const float* weight, float* transformed) {
  const std::int64_t channels = plan.direction.channels,
                     blocks = (plan.direction.rows + product_columns<float> - 1) / product_columns<float>;
  const EvenBlocks parts(channels, most_weight_channels);
  const std::vector<WeightElement> part = plan.packed.elements_of(plan.all_taps, parts.size);
  const std::vector<WeightElement> last = plan.packed.elements_of(plan.all_taps, parts.length_of(parts.count - 1));
  parallel_for(blocks * parts.count, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> packed(part.size() * product_columns<float>);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = i / parts.count * product_columns<float>, first = parts.begin(i % parts.count);
      const std::int64_t count = parts.length_of(i % parts.count), width = plan.packed.vectors(column) * lanes;
      plan.packed.pack_block<float>(count == parts.size ? part : last, 0, column, first, weight, packed.data());
      for (std::int64_t k = 0; k < plan.depths * count; ++k) {
        const float* const kernel_at = packed.data() + (k / count * taps * taps * count + k % count) * width;
        float* const to = transformed + column * plan.depth() + (k / count * channels + first + k % count) * width;
        for (std::int64_t v = 0; v < width; v += lanes) {
          V kernel[taps * taps], result[elements];
          for (int tap = 0; tap < taps * taps; ++tap) kernel[tap] = simd::load(kernel_at + tap * count * width + v);
          transform_square<taps, edge>(kernel, result, transform_taps);
          for (int e = 0; e < elements; ++e) simd::store(to + e * plan.weight_step() + v, result[e]);
        }
      }
    }
  });
}

/// The tiles that one plane's window holds, from `tile` of the item on: (elements, depth taps, tiles, channels).
void transform_inputs(const Plan& plan, const Item& item, const float* window, std::int64_t tile, float* inputs) {
  const std::int64_t channels = plan.direction.channels;
  for (std::int64_t k = 0; k < plan.depths; ++k) {
    // Where the tap's plane lies in the window: the first tap of each of its rows.
    const float* const plane = window + plan.all_taps.taps[static_cast<std::size_t>(k * taps * taps)].offset;
    for (std::int64_t t = 0; t < item.tiles_of_plane(); ++t) {
      const float* const from =
          plane + t / item.tile_columns * outputs * plan.window.axis[1] + t % item.tile_columns * outputs * plan.window.axis[2];
      float* const to = inputs + (k * plan.most + tile + t) * channels;
      for (std::int64_t c = 0; c < channels; c += lanes) {
        V square[elements], result[elements];
        for (int e = 0; e < elements; ++e)
          square[e] = simd::load(from + e / edge * plan.window.axis[1] + e % edge * plan.window.axis[2] + c);
        transform_square<edge, edge>(square, result, transform_input);
        for (int e = 0; e < elements; ++e) simd::store(to + e * plan.input_step() + c, result[e]);
      }
    }
  }
}

/// (elements, tiles, columns of the item) from the inputs and the weights, for each element of the tiles.
void multiply_tiles(const Plan& plan, const Item& item, const float* inputs, const float* weights, float* products) {
  const std::int64_t channels = plan.direction.channels, tiles = item.tiles();
  std::array<const float*, most_tiles> positions;
  for (int e = 0; e < elements; ++e) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      positions[static_cast<std::size_t>(t)] = inputs + e * plan.input_step() + t * channels;
    }
    for (std::int64_t begin = 0; begin < item.columns; begin += product_columns<float>) {
      const std::int64_t column = item.column + begin;
      const int vectors = plan.packed.vectors(column);
      for (const Chunk& chunk : plan.depth_taps.chunks) {
        multiply<float>({.runs = plan.depth_taps.runs_of(chunk),
                         .a = {positions.data(), static_cast<std::size_t>(tiles)},
                         .b = weights + e * plan.weight_step() + column * plan.depth() + chunk.begin * vectors * lanes,
                         .vectors = vectors,
                         .c = products + e * plan.product_step() + begin,
                         .c_stride = plan.columns.size,
                         .accumulate = chunk.begin > 0});
      }
    }
  }
}

/// The outputs of one plane's tiles, those that lie in the output.
void transform_products(const Plan& plan, const Item& item, std::int64_t plane, std::int64_t tile, const float* products, const float* bias,
                        float* output) {
  const Direction& d = plan.direction;
  for (std::int64_t t = 0; t < item.tiles_of_plane(); ++t) {
    const std::int64_t row = (item.row + t / item.tile_columns) * outputs, column = (item.tile_column + t % item.tile_columns) * outputs;
    const std::int64_t height = std::min<std::int64_t>(outputs, d.output[1] - row),
                       width = std::min<std::int64_t>(outputs, d.output[2] - column);
    float* const to = output + ((plane * d.output[1] + row) * d.output[2] + column) * d.rows + item.column;
    for (std::int64_t c = 0; c < item.columns; c += lanes) {
      V square[elements], result[outputs * outputs];
      for (int e = 0; e < elements; ++e) square[e] = simd::load(products + e * plan.product_step() + (tile + t) * plan.columns.size + c);
      transform_square<edge, outputs>(square, result, transform_output);
      const V start = bias == nullptr ? V{} : simd::load(bias + item.column + c);
      for (std::int64_t i = 0; i < height; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
          simd::store(to + (i * d.output[2] + j) * d.rows + c, result[i * outputs + j] + start);
        }
      }
    }
  }
}

void finish_item(const Plan& plan, const Item& item, const Finish& finish, std::byte* workspace) {
  const Direction& d = plan.direction;
  const std::int64_t row = item.row * outputs, column = item.tile_column * outputs;
  const std::int64_t height = std::min(item.rows * outputs, d.output[1] - row),
                     width = std::min(item.tile_columns * outputs, d.output[2] - column);
  for (std::int64_t plane = item.plane; plane < item.plane + item.planes; ++plane) {
    const std::int64_t first = ((plane * d.output[1] + row) * d.output[2] + column) * d.rows + item.column;
    if (item.columns == d.rows) {
      finish.run({first, height, d.output[2] * d.rows, width * d.rows}, workspace);
      continue;
    }
    for (std::int64_t i = 0; i < height; ++i) finish.run({first + i * d.output[2] * d.rows, width, d.rows, item.columns}, workspace);
  }
}

}  // namespace

bool suits_winograd(const Direction& d, Layout output, std::size_t element_size) {
  const ConvolutionGeometry& g = d.geometry;
  bool fits = element_size == sizeof(float) && g.groups == 1 && ImageStrides(output, d.rows, d.output).channels_last();
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) fits = fits && g.kernel[i] == taps && g.stride[i] == 1 && g.dilation[i] == 1;
  fits = fits && (!d.back || g.stride[0] == 1) && d.channels % lanes == 0 && d.rows % lanes == 0;
  // Of a sample: the bits of an image do not depend on the batch.
  const std::int64_t tiles = d.output[0] * tiles_of(d.output[1]) * tiles_of(d.output[2]);
  return fits && d.channels >= least_channels && d.rows >= least_channels && tiles >= least_tiles;
}

std::int64_t packed_winograd_elements(const Direction& d) {
  return elements * Plan(d, Layout::contiguous, Layout::contiguous, {}).weight_step();
}

void pack_for_winograd(const Direction& d, Image<const float> weight, float* packed) {
  transform_weights(Plan(d, Layout::contiguous, weight.layout, {}), weight.data, packed);
}

std::size_t winograd_scratch(const Direction& d, Layout source, const Finish& finish) {
  return Plan(d, source, Layout::contiguous, finish).work.scratch();
}

void winograd_convolve(const Direction& d, Image<const float> source, const float* packed, const float* bias, Image<float> output,
                       std::span<std::byte> scratch, const Finish& finish) {
  const Plan plan(d, source.layout, Layout::contiguous, finish);
  plan.work.run(scratch, [&](std::int64_t index, std::byte* workspace) {
    const Item item = plan.item(index);
    float* const window = reinterpret_cast<float*>(workspace + plan.window_place);
    float* const inputs = reinterpret_cast<float*>(workspace + plan.inputs_place);
    float* const products = reinterpret_cast<float*>(workspace + plan.products_place);
    for (std::int64_t i = 0; i < item.planes; ++i) {
      const Box box = plan.box(item.plane + i, item);
      copy_window(plan.window, box, plan.source, source.data, 0, 0, plan.window.rows(box), window);
      transform_inputs(plan, item, window, i * item.tiles_of_plane(), inputs);
    }
    multiply_tiles(plan, item, inputs, packed, products);
    for (std::int64_t i = 0; i < item.planes; ++i) {
      transform_products(plan, item, item.plane + i, i * item.tiles_of_plane(), products, bias, output.data);
    }
    if (finish.run) finish_item(plan, item, finish, workspace);
  });
}

}  // namespace frit::ops
