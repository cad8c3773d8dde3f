#include "frit/ops/convolution/cpu/winograd_cpu.h"

#include <algorithm>
#include <optional>

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/cpu/packed_weight.h"
#include "frit/ops/convolution/cpu/winograd_transforms.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

using namespace winograd;

/// Tiles that one item of work computes, fewer items than which compute a part of the channels each, and the fewest of a sample that pay.
constexpr std::int64_t most_tiles = 24, enough_items = 16, least_tiles = 12;
/// Tiles of a batch that are few: their inputs are transformed once for all items, and no weight is read by two of these.
constexpr std::int64_t most_few_tiles = 96;
/// The fewest where the output has few channels, and where those or the input's fill no whole vectors besides: with few tiles in all that
/// takes up to a tenth longer than plain sums (18 and 20 channels at 28 x 28).
constexpr std::int64_t few_channels = 32, least_tiles_of_few = 20, least_tiles_of_few_odd = most_few_tiles + 1;
constexpr std::int64_t least_channels = 8, most_depth = 128;
/// Elements of a tile's element that are summed, at least.
constexpr std::int64_t least_depth = 16;
/// Channels whose weights are transformed at a time.
constexpr std::int64_t most_weight_channels = 32;

/// Some planes of the output, samples' planes in their order, and in each the same tiles.
struct Item {
  std::int64_t plane, planes, row, rows, tile_column, tile_columns;
  std::int64_t column, columns;  ///< the output's channels

  std::int64_t tiles_of_plane() const { return rows * tile_columns; }
  std::int64_t tiles() const { return planes * tiles_of_plane(); }
};

bool few_tiles(const Direction& d) {
  return d.geometry.kernel[0] == 1 && d.geometry.batch * d.output[0] * tiles_of(d.output[1]) * tiles_of(d.output[2]) <= most_few_tiles;
}

/// How the work is cut; a function of the sizes and layouts alone.
struct Plan {
  Direction direction;
  ImageStrides source, output, weight;
  ImageStrides numbers;  ///< of the output's elements, for Finish
  EvenBlocks planes, rows, tile_columns, columns;
  Window window;
  TapRuns all_taps, depth_taps;  ///< of the weight, and of a transformed tile: only the depth's
  PackedWeight packed;
  std::int64_t most, depths;  ///< tiles of an item, and taps along the depth
  ScratchParts shared, own;   ///< scratch memory: of all threads, and of each
  std::size_t inputs_place, window_place, products_place, line_place, taps_place, weights_place;
  WorkSplit lines, work;  ///< lines: rows of tiles, where there are few, whose inputs are transformed first

  Plan(const Direction& d, ImageLayouts layouts, ImagePlace weight_place, const Finish& finish)
      : direction(d),
        source(layouts.source, d.channels, d.source),
        output(layouts.output, d.rows, d.output),
        weight(weight_place, d.geometry.in_channels, d.geometry.kernel),
        numbers(layouts.output.layout, d.rows, d.output),
        planes(d.geometry.batch * d.output[0], std::max<std::int64_t>(1, of_item() / (tiles_of(d.output[1]) * tiles_of(d.output[2])))),
        rows(tiles_of(d.output[1]), std::max<std::int64_t>(1, of_item() / tiles_of(d.output[2]))),
        tile_columns(tiles_of(d.output[2]), of_item()),
        columns(d.rows, columns_of_item(), product_columns<float>),
        window(d, source, largest_box(), d.channels),
        all_taps(d.taps({}), window, weight, most_depth),
        depth_taps(taps_of_depth(), d.channels, most_depth),
        packed(d, weight, sizeof(float)),
        most(planes.size * rows.size * tile_columns.size),
        depths(d.geometry.kernel[0]) {
    const bool few = few_tiles(d);
    inputs_place = (few ? shared : own).add(elements * input_step(), sizeof(float));
    window_place = own.add(window.elements(largest_box()) + lanes, sizeof(float));  // a pixel's last vector may go beyond it
    products_place = own.add(elements * product_step(), sizeof(float));
    line_place = own.add(output.channels_last() ? 0 : tile_outputs * line_step(), sizeof(float));
    taps_place = own.add(few ? taps * taps * most_depth * product_columns<float> : 0, sizeof(float));
    weights_place = own.add(few ? elements * part_step() : 0, sizeof(float));
    const std::int64_t cost = most * elements * columns.size * depths * d.channels;
    if (few) lines = WorkSplit(planes.length * rows.length, tile_columns.size * elements * d.channels, own.bytes());
    work = WorkSplit(planes.count * rows.count * tile_columns.count * columns.count, cost, std::max(own.bytes(), finish.workspace_bytes));
  }

  std::size_t scratch() const { return shared.bytes() + std::max(lines.scratch(), work.scratch()); }

  std::int64_t depth() const { return depths * direction.channels; }
  /// Of a tile's inputs, whole vectors of channels, of which products read the channels.
  std::int64_t tile_step() const { return round_up(direction.channels, lanes); }
  /// Between the elements of a tile, of its weights, inputs and products: lines of several fall on different cache sets.
  std::int64_t weight_step() const { return depth() * packed.columns() + 16; }
  std::int64_t input_step() const { return most * depths * tile_step() + 16; }
  std::int64_t product_step() const { return most * columns.size + 16; }
  /// Of a line of outputs that is computed before it is written.
  std::int64_t line_step() const { return tile_columns.size * tile_outputs * columns.size; }
  /// Likewise of the weights of a chunk and a block of columns.
  static std::int64_t part_step() { return most_depth * product_columns<float> + 16; }

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
            {plane % direction.output[0], item.row * tile_outputs, item.tile_column * tile_outputs},
            {1, item.rows * tile_outputs, item.tile_columns * tile_outputs}};
  }
  /// Those of them that lie in the output.
  Box inside(std::int64_t plane, const Item& item) const {
    Box result = box(plane, item);
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
      result.size[i] = std::min(result.size[i], direction.output[i] - result.begin[i]);
    return result;
  }

 private:
  std::int64_t of_item() const { return few_tiles(direction) ? most_few_tiles : most_tiles; }
  /// Of what is copied at a time.
  Box largest_box() const { return box(0, {0, 1, 0, few_tiles(direction) ? 1 : rows.size, 0, tile_columns.size, 0, 0}); }
  std::int64_t columns_of_item() const {
    const std::int64_t items = std::max<std::int64_t>(1, planes.count * rows.count * tile_columns.count);
    const std::int64_t parts = std::max<std::int64_t>(1, enough_items / items);
    return ((direction.rows + parts - 1) / parts + product_columns<float> - 1) / product_columns<float> * product_columns<float>;
  }
  std::vector<Tap> taps_of_depth() const {
    std::vector<Tap> result;
    const std::int64_t tiles = planes.size * rows.size * tile_columns.size;
    for (std::int64_t k = 0; k < direction.geometry.kernel[0]; ++k) result.push_back({k * tiles * tile_step(), 0});
    return result;
  }
};

/// Those of `count` channels from `channel` on for a block of columns, `step` between the elements of a tile: (depth taps, channels,
/// columns), of which `to` is the first. `elements_of` are PackedWeight's; they are brought together in `packed`.
void transform_part(const Plan& plan, std::span<const WeightElement> elements_of, std::int64_t column, std::int64_t channel,
                    std::int64_t count, const float* weight, float* packed, float* to, std::int64_t step) {
  const std::int64_t width = plan.packed.vectors(column) * lanes;
  plan.packed.pack_block<float>(elements_of, 0, column, channel, weight, packed);
  for (std::int64_t k = 0; k < plan.depths * count; ++k) {
    const float* const kernel_at = packed + (k / count * taps * taps * count + k % count) * width;
    float* const place = to + (k / count * plan.direction.channels + k % count) * width;
    for (std::int64_t v = 0; v < width; v += lanes) {
      V kernel[taps * taps], result[elements];
      for (int tap = 0; tap < taps * taps; ++tap) kernel[tap] = simd::load(kernel_at + tap * count * width + v);
      transform_square<taps, edge>(kernel, result, transform_taps);
      for (int e = 0; e < elements; ++e) simd::store(place + e * step + v, result[e]);
    }
  }
}

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
      const std::int64_t count = parts.length_of(i % parts.count);
      float* const to = transformed + column * plan.depth() + first * plan.packed.vectors(column) * lanes;
      transform_part(plan, count == parts.size ? part : last, column, first, count, weight, packed.data(), to, plan.weight_step());
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
          plane + t / item.tile_columns * tile_outputs * plan.window.axis[1] + t % item.tile_columns * tile_outputs * plan.window.axis[2];
      float* const to = inputs + (k * plan.most + tile + t) * plan.tile_step();
      for (std::int64_t c = 0; c < channels; c += lanes) {
        V square[elements], result[elements];
        for (int e = 0; e < elements; ++e)
          square[e] = simd::load(from + e / edge * plan.window.axis[1] + e % edge * plan.window.axis[2] + c);
        transform_square<edge, edge>(square, result, transform_input);
        store_elements(result, to + c, plan.input_step());
      }
    }
  }
}

/// A chunk's products of one element of the tiles with a block of columns, `begin` of the item's.
void multiply_element(const Plan& plan, const Item& item, int e, const Chunk& chunk, const float* inputs, const float* weights,
                      std::int64_t begin, float* products) {
  std::array<const float*, most_few_tiles> positions;
  const auto tiles = static_cast<std::size_t>(item.tiles());
  for (std::size_t t = 0; t < tiles; ++t) {
    positions[t] = inputs + e * plan.input_step() + static_cast<std::int64_t>(t) * plan.tile_step();
  }
  multiply<float>({.runs = plan.depth_taps.runs_of(chunk),
                   .a = {positions.data(), tiles},
                   .b = weights,
                   .vectors = plan.packed.vectors(item.column + begin),
                   .c = products + e * plan.product_step() + begin,
                   .c_stride = plan.columns.size,
                   .accumulate = chunk.begin > 0});
}

/// (elements, tiles, columns of the item) from the inputs and the weights, for each element of the tiles.
void multiply_tiles(const Plan& plan, const Item& item, const float* inputs, const float* weights, float* products) {
  for (int e = 0; e < elements; ++e) {
    for (std::int64_t begin = 0; begin < item.columns; begin += product_columns<float>) {
      const std::int64_t column = item.column + begin;
      for (const Chunk& chunk : plan.depth_taps.chunks) {
        const std::int64_t place = column * plan.depth() + chunk.begin * plan.packed.vectors(column) * lanes;
        multiply_element(plan, item, e, chunk, inputs, weights + e * plan.weight_step() + place, begin, products);
      }
    }
  }
}

/// The same where the weights are not packed: a chunk of them is transformed for a block of columns, and multiplied while it is in cache.
class MultiplyInParts {
 public:
  MultiplyInParts(const Plan& plan, const float* weight) : plan_(plan), weight_(weight) {
    const std::vector<Chunk>& chunks = plan.depth_taps.chunks;
    first_ = plan.packed.elements_of(plan.all_taps, chunks.front().length);
    last_ = plan.packed.elements_of(plan.all_taps, chunks.back().length);
  }

  void run(const Item& item, const float* inputs, float* products, std::byte* workspace) const {
    float* const kernels = reinterpret_cast<float*>(workspace + plan_.taps_place);
    float* const weights = reinterpret_cast<float*>(workspace + plan_.weights_place);
    for (std::int64_t begin = 0; begin < item.columns; begin += product_columns<float>) {
      for (const Chunk& chunk : plan_.depth_taps.chunks) {
        const bool whole = chunk.length == plan_.depth_taps.chunks.front().length;
        transform_part(plan_, whole ? first_ : last_, item.column + begin, chunk.begin, chunk.length, weight_, kernels, weights,
                       Plan::part_step());
        for (int e = 0; e < elements; ++e) {
          multiply_element(plan_, item, e, chunk, inputs, weights + e * Plan::part_step(), begin, products);
        }
      }
    }
  }

 private:
  const Plan& plan_;
  const float* weight_;
  std::vector<WeightElement> first_, last_;
};

/// The outputs of a tile, (height, width, columns of the item), with these steps; the addend's are the same.
struct TileOutputs {
  float* first = nullptr;
  const float* addend = nullptr;  ///< or null
  std::int64_t row = 0, pixel = 0, height, width;
};

void transform_tile(const Plan& plan, const Item& item, const float* products, const float* bias, const Rectifier<float>& rectifier,
                    const TileOutputs& to) {
  const V low = simd::broadcast(rectifier.low), high = simd::broadcast(rectifier.high);
  const auto transform = [&](std::int64_t c, const auto& load, const auto& store) {
    V square[elements], result[tile_outputs * tile_outputs];
    for (int e = 0; e < elements; ++e) square[e] = simd::load(products + e * plan.product_step() + c);
    transform_square<edge, tile_outputs>(square, result, transform_output);
    const V start = bias == nullptr ? V{} : load(bias + item.column + c);
    for (std::int64_t i = 0; i < to.height; ++i) {
      for (std::int64_t j = 0; j < to.width; ++j) {
        const std::int64_t place = i * to.row + j * to.pixel + c;
        V sum = result[i * tile_outputs + j] + start;
        if (to.addend != nullptr) sum += load(to.addend + place);
        store(to.first + place, simd::clamp<float>(sum, low, high));
      }
    }
  };
  const std::int64_t whole = item.columns / lanes * lanes, rest = item.columns - whole;
  for (std::int64_t c = 0; c < whole; c += lanes) {
    transform(
        c, [](const float* from) { return simd::load(from); }, [](float* place, V value) { simd::store(place, value); });
  }
  if (rest == 0) return;
  transform(
      whole, [rest](const float* from) { return simd::load_first(from, rest); },
      [rest](float* place, V value) { simd::store_first(place, value, rest); });
}

/// The outputs of one plane's tiles, those that lie in the output; where it is contiguous, a line of tiles at a time by way of `line`.
void transform_products(const Plan& plan, const Item& item, std::int64_t plane, const float* products, const float* bias,
                        const Rectifier<float>& rectifier, float* output, float* line) {
  const ImageStrides& to = plan.output;
  const Box box = plan.inside(plane, item);
  for (std::int64_t row = 0; row < box.size[1]; row += tile_outputs) {
    const std::int64_t height = std::min<std::int64_t>(tile_outputs, box.size[1] - row);
    const std::int64_t first = to.place(box.sample, item.column, {box.begin[0], box.begin[1] + row, box.begin[2]});
    for (std::int64_t column = 0; column < box.size[2]; column += tile_outputs, products += plan.columns.size) {
      TileOutputs tile{.height = height, .width = std::min<std::int64_t>(tile_outputs, box.size[2] - column)};
      if (to.channels_last()) {
        const std::int64_t place = first + column * to.axis[2];
        tile.first = output + place, tile.row = to.axis[1], tile.pixel = to.axis[2];
        tile.addend = rectifier.addend == nullptr ? nullptr : rectifier.addend + place;
      } else {
        tile.first = line + column * plan.columns.size, tile.row = plan.line_step(), tile.pixel = plan.columns.size;
      }
      transform_tile(plan, item, products, bias, rectifier, tile);
    }
    for (std::int64_t i = 0; !to.channels_last() && i < height; ++i) {
      write_pixels(line + i * plan.line_step(), plan.columns.size, box.size[2], item.columns, output + first + i * to.axis[1], to.channel);
    }
  }
}

}  // namespace

bool tiles_suit(const ConvolutionGeometry& g, std::size_t element_size) {
  bool fits = element_size == sizeof(float) && g.groups == 1;
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) fits = fits && g.kernel[i] == taps && g.stride[i] == 1 && g.dilation[i] == 1;
  for (const std::int64_t channels : {g.in_channels, g.out_channels}) {
    fits = fits && channels >= least_channels && g.kernel[0] * channels >= least_depth;
  }
  return fits;
}

bool suits_winograd(const Direction& d, std::size_t element_size) {
  if (!tiles_suit(d.geometry, element_size) || (d.back && d.geometry.stride[0] != 1)) return false;
  // Of a sample: the bits of an image do not depend on the batch. To few channels, few tiles are not worth transforming.
  const std::int64_t tiles = d.output[0] * tiles_of(d.output[1]) * tiles_of(d.output[2]);
  if (d.rows > few_channels) return tiles >= least_tiles;
  return tiles >= (d.rows % lanes == 0 && d.channels % lanes == 0 ? least_tiles_of_few : least_tiles_of_few_odd);
}

/// Few tiles' weights are not kept: transformed, they take four times the memory, and as long to be read.
Packing winograd_packing(const Direction& d) {
  if (few_tiles(d)) return {0, false};
  return {elements * Plan(d, {}, Layout::contiguous, {}).weight_step(), true};
}

void pack_for_winograd(const Direction& d, Image<const float> weight, float* packed) {
  transform_weights(Plan(d, {}, weight.place, {}), weight.data, packed);
}

std::size_t winograd_scratch(const Direction& d, ImageLayouts layouts, const Finish& finish) {
  return Plan(d, layouts, Layout::contiguous, finish).scratch();
}

void winograd_convolve(const Direction& d, Image<const float> source, const Weight<float>& weight, const float* bias, Image<float> output,
                       std::span<std::byte> scratch, const Finish& finish) {
  const Plan plan(d, {source.place, output.place}, weight.unpacked.place, finish);
  const auto transform = [&](const Item& item, std::int64_t plane, std::int64_t tile, std::byte* workspace, float* inputs) {
    float* const window = reinterpret_cast<float*>(workspace + plan.window_place);
    const Box box = plan.box(plane, item);
    copy_window(plan.window, box, plan.source, source.data, 0, 0, plan.window.rows(box), window);
    transform_inputs(plan, item, window, tile, inputs);
  };
  const std::span<std::byte> own = scratch.subspan(plan.shared.bytes());
  float* const all_inputs = few_tiles(d) ? scratch_part<float>(scratch, plan.inputs_place) : nullptr;
  plan.lines.run(own, [&](std::int64_t line, std::byte* workspace) {
    const Item row{line / plan.rows.length, 1, line % plan.rows.length, 1, 0, plan.tile_columns.size, 0, 0};
    transform(row, row.plane, line * plan.tile_columns.size, workspace, all_inputs);
  });
  std::optional<MultiplyInParts> in_parts;
  if (weight.packed == nullptr) in_parts.emplace(plan, weight.unpacked.data);
  plan.work.run(own, [&](std::int64_t index, std::byte* workspace) {
    const Item item = plan.item(index);
    float* const inputs = all_inputs != nullptr ? all_inputs : reinterpret_cast<float*>(workspace + plan.inputs_place);
    float* const products = reinterpret_cast<float*>(workspace + plan.products_place);
    for (std::int64_t i = 0; all_inputs == nullptr && i < item.planes; ++i) {
      transform(item, item.plane + i, i * item.tiles_of_plane(), workspace, inputs);
    }
    if (in_parts) {
      in_parts->run(item, inputs, products, workspace);
    } else {
      multiply_tiles(plan, item, inputs, weight.packed, products);
    }
    float* const line = reinterpret_cast<float*>(workspace + plan.line_place);
    for (std::int64_t i = 0; i < item.planes; ++i) {
      transform_products(plan, item, item.plane + i, products + i * item.tiles_of_plane() * plan.columns.size, bias,
                         finish.rectifier<float>(), output.data, line);
    }
    for (std::int64_t i = 0; finish.run && i < item.planes; ++i) {
      for_each_runs(plan.numbers, plan.inside(item.plane + i, item), item.column, item.columns,
                    [&](const Runs& runs) { finish.run(runs, workspace); });
    }
  });
}

}  // namespace frit::ops
