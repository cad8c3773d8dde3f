#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "frit/ops/chain/chain.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/chain/stages/channel_lanes.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// The norm in a channel as (x - reference) * slope + shift, and the factor after it. The reference is the mean, rounded: the difference
/// keeps the digits of data far from zero, and is 0 where all elements are equal.
template <class T>
struct GroupMap {
  T reference, slope, shift, factor;

  GroupMap(const SliceStatistics& statistics, T weight, T bias, T scale) : reference(static_cast<T>(statistics.mean)), factor(scale) {
    const ScaledGroupChannel<T> channel(statistics.mean, statistics.rstd, weight, bias, scale);
    const double moved = (statistics.mean - static_cast<double>(reference)) * channel.slope;
    slope = static_cast<T>(channel.slope);
    shift = static_cast<T>(std::isfinite(slope) ? channel.shift - moved : channel.shift);
  }
  T operator()(T x) const { return ((x - reference) * slope + shift) * factor; }
  /// Whether it rises or falls all along, so that a maximum is that of the largest or smallest element.
  bool keeps_order() const { return slope != 0 && factor != 0 && std::isfinite(reference + slope + shift + factor); }
};

/// One pass over the input: a block of rows gives its part of the sums, and while it is in the cache the largest, or smallest, element of
/// each window; what they become is computed when the statistics are known.
template <class T, class Index>
struct Forward {
  Geometry geometry;
  EvenBlocks blocks;                       // of rows of windows
  const T *input, *weight, *bias, *scale;  // the images here and below with their channels last
  Clamp<T> clamp;
  double eps;
  T* output;
  Index* argmax;
  T* argmax_input;
  double *means, *rstds;  // (N, G), or null
  DifferenceSums* sums;   // (N, blocks, C)
  GroupMap<T>* maps;      // (N, C)
  T* signs;               // (C), -1 where a map falls
  KernelRange* columns;   // (W'), elements of the windows that meet the image

  const T* pixel(std::int64_t sample, std::int64_t p) const { return input + (sample * geometry.pixels() + p) * geometry.channels; }
  std::int64_t place(std::int64_t sample, std::int64_t row, std::int64_t column) const {
    return ((sample * geometry.pool.output[1] + row) * geometry.pool.output[2] + column) * geometry.channels;
  }
  /// Where the chosen elements go: if they are not asked for, to where they become the output.
  T* elements() const { return argmax_input != nullptr ? argmax_input : output; }

  /// The pivot of a group is its first element.
  double pivot(std::int64_t sample, std::int64_t c) const {
    return static_cast<double>(pixel(sample, 0)[c - c % geometry.group_channels()]);
  }

  /// The first row of the image that counts in the sums of a block.
  std::int64_t image_row(std::int64_t block) const {
    if (block == blocks.count) return geometry.pool.image[1];
    return block == 0 ? 0 : std::clamp<std::int64_t>(geometry.pool.window_begin(1, blocks.begin(block)), 0, geometry.pool.image[1]);
  }

  void sum_block(std::int64_t sample, std::int64_t block) const {
    const std::int64_t width = geometry.pool.image[2], row = image_row(block);
    sum_differences(
        pixel(sample, row * width), (image_row(block + 1) - row) * width, geometry.channels,
        [&](std::int64_t c) { return pivot(sample, c); }, sums + (sample * blocks.count + block) * geometry.channels);
  }

  /// The elements of a window that are chosen in `n` channels from c on: of equals the first.
  template <int n, bool numbered>
  void choose(std::int64_t sample, std::int64_t row, std::int64_t column, const KernelRange& heights, std::int64_t c) const {
    typedef T Values __attribute__((vector_size(n * sizeof(T))));
    typedef Index Indices __attribute__((vector_size(n * sizeof(Index))));
    using Numbers = decltype(Values{} > Values{});
    const auto load = [](const T* from) {
      Values values;
      std::memcpy(&values, from, sizeof values);
      return values;
    };
    const PoolGeometry& pool = geometry.pool;
    const KernelRange widths = columns[column];
    const std::int64_t step = pool.dilation[2] * geometry.channels, row_step = pool.dilation[1] * pool.image[2] * geometry.channels;
    const std::int64_t h = pool.window_begin(1, row) + heights.begin * pool.dilation[1];
    const std::int64_t w = pool.window_begin(2, column) + widths.begin * pool.dilation[2];
    const T* line = pixel(sample, h * pool.image[2] + w) + c;
    const Values sign = load(signs + c);
    Values value = load(line) * sign;
    Numbers number = static_cast<std::int32_t>(heights.begin * pool.kernel[2] + widths.begin) - Numbers{};
    for (std::int64_t kh = heights.begin; kh < heights.end; ++kh, line += row_step) {
      const T* x = line;
      for (std::int64_t kw = widths.begin; kw < widths.end; ++kw, x += step) {
        const Values offered = load(x) * sign;
        if constexpr (numbered) {
          number = offered > value ? static_cast<std::int32_t>(kh * pool.kernel[2] + kw) - Numbers{} : number;
        }
        value = offered > value ? offered : value;
      }
    }
    const Values element = value * sign;
    const std::int64_t to = place(sample, row, column) + c;
    if (elements() != nullptr) std::memcpy(elements() + to, &element, sizeof element);
    if constexpr (numbered) {
      const Indices indices = __builtin_convertvector(number, Indices);
      std::memcpy(argmax + to, &indices, sizeof indices);
    }
  }

  template <bool numbered>
  void choose_in_row(std::int64_t sample, std::int64_t row) const {
    constexpr int lanes = simd::lanes<T>;
    const KernelRange heights = kernel_range(geometry.pool, 1, row, row);
    for (std::int64_t column = 0; column < geometry.pool.output[2]; ++column) {
      if (geometry.channels < lanes) {
        for (std::int64_t c = 0; c < geometry.channels; ++c) choose<1, numbered>(sample, row, column, heights, c);
      } else {  // the last vector may hold channels that the one before it has
        for (std::int64_t c = 0; c < geometry.channels; c += lanes) {
          choose<lanes, numbered>(sample, row, column, heights, std::min(c, geometry.channels - lanes));
        }
      }
    }
  }

  void find_statistics(std::int64_t sample, std::int64_t group) const {
    const std::int64_t begin = group * geometry.group_channels(), end = begin + geometry.group_channels();
    DifferenceSums total;
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      for (std::int64_t c = begin; c < end; ++c) total += sums[(sample * blocks.count + block) * geometry.channels + c];
    }
    const SliceStatistics statistics =
        statistics_of(total.moments(blocks.count == 0 ? 0 : pivot(sample, begin), geometry.group_pixels()), eps);
    if (means != nullptr) means[sample * geometry.groups + group] = statistics.mean;
    if (rstds != nullptr) rstds[sample * geometry.groups + group] = statistics.rstd;
    for (std::int64_t c = begin; c < end; ++c) maps[sample * geometry.channels + c] = {statistics, weight[c], bias[c], scale[c]};
  }

  /// Makes the output of a row's chosen elements.
  void finish_row(std::int64_t sample, std::int64_t row) const {
    const std::int64_t begin = place(sample, row, 0);
    const GroupMap<T>* const of_sample = maps + sample * geometry.channels;
    ChannelLanes::for_each(geometry.channels, [&](const ChannelLanes& lanes) {
      const auto of = [&](T GroupMap<T>::*field) { return lanes.of<T>([&](std::int64_t c) { return of_sample[c].*field; }); };
      const auto reference = of(&GroupMap<T>::reference), slope = of(&GroupMap<T>::slope), shift = of(&GroupMap<T>::shift);
      const auto factor = of(&GroupMap<T>::factor);
      lanes.for_each_step(lanes.first, geometry.pool.output[2], [&](std::int64_t first, std::int64_t count) {
        const T* const from = elements() + begin + first;
        T* const to = output + begin + first;
        const Clamp<T> bounds = clamp;
        FRIT_INDEPENDENT_ITERATIONS
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
          to[i] = bounds(((from[i] - reference[i]) * slope[i] + shift[i]) * factor[i]);
        }
      });
    });
  }

  /// The maximum of a window found as max_pool2d would, for a map that does not keep the order: of equals the first, of NaNs the last.
  void find_maximum(std::int64_t sample, std::int64_t row, std::int64_t column, std::int64_t c) const {
    const PoolGeometry& pool = geometry.pool;
    const KernelRange heights = kernel_range(pool, 1, row, row), widths = columns[column];
    T best = -std::numeric_limits<T>::infinity(), element = 0;
    std::int64_t number = -1;
    for (std::int64_t kh = heights.begin; kh < heights.end; ++kh) {
      for (std::int64_t kw = widths.begin; kw < widths.end; ++kw) {
        const std::int64_t h = pool.window_begin(1, row) + kh * pool.dilation[1], w = pool.window_begin(2, column) + kw * pool.dilation[2];
        const T offered_element = pixel(sample, h * pool.image[2] + w)[c], offered = maps[sample * geometry.channels + c](offered_element);
        if (number >= 0 && !replaces_maximum(offered, best)) continue;
        best = offered;
        element = offered_element;
        number = kh * pool.kernel[2] + kw;
      }
    }
    const std::int64_t to = place(sample, row, column) + c;
    if (output != nullptr) output[to] = clamp(best);
    if (argmax != nullptr) argmax[to] = static_cast<Index>(number);
    if (argmax_input != nullptr) argmax_input[to] = element;
  }

  void run_sample(std::int64_t sample) const {
    const auto for_each_row = [&](const auto& body) {
      parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) {
        for (std::int64_t row = blocks.begin(block); row < blocks.begin(block) + blocks.length_of(block); ++row) body(row);
      });
    };
    parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) {
      sum_block(sample, block);
      for (std::int64_t row = blocks.begin(block); row < blocks.begin(block) + blocks.length_of(block); ++row) {
        argmax != nullptr ? choose_in_row<true>(sample, row) : choose_in_row<false>(sample, row);
      }
    });
    for (std::int64_t group = 0; group < geometry.groups; ++group) find_statistics(sample, group);
    if (output != nullptr) for_each_row([&](std::int64_t row) { finish_row(sample, row); });
    for (std::int64_t c = 0; c < geometry.channels; ++c) {
      if (maps[sample * geometry.channels + c].keeps_order()) continue;
      for_each_row([&](std::int64_t row) {
        for (std::int64_t column = 0; column < geometry.pool.output[2]; ++column) find_maximum(sample, row, column, c);
      });
    }
  }

  void run() const {
    for (std::int64_t column = 0; column < geometry.pool.output[2]; ++column)
      columns[column] = kernel_range(geometry.pool, 2, column, column);
    for (std::int64_t c = 0; c < geometry.channels; ++c) signs[c] = (weight[c] < 0) != (scale[c] < 0) ? T(-1) : T(1);
    parallel_for(geometry.samples, sample_grain(geometry.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) run_sample(sample);
    });
  }
};

/// The scratch memory.
struct Scratch {
  EvenBlocks blocks;
  ScratchParts all;
  std::size_t sums, maps, signs, columns, copies;

  Scratch(const Geometry& geometry, DType dtype)
      : blocks(row_blocks(geometry.pool.output[1], geometry.pool.stride[1] * geometry.pool.image[2] * geometry.channels)) {
    sums = all.add(geometry.samples * blocks.count * geometry.channels, sizeof(DifferenceSums));
    maps = all.add(geometry.samples * geometry.channels, sizeof(GroupMap<double>));
    signs = all.add(geometry.channels, size_of(dtype));
    columns = all.add(geometry.pool.output[2], sizeof(KernelRange));
    copies = all.bytes();
  }
};

std::size_t scratch_bytes(const InferContext& call) {
  std::size_t bytes = Scratch(Geometry(call.shape(0), call.as<ChainAttributes>()), call.inputs[0].dtype).copies;
  bytes += ChannelsLastCopies::bytes(call.inputs[0], call.input_layout(0));
  const std::vector<TensorType> outputs = group_norm_scale_max_pool_clamp_types(call, 0);
  for (const std::size_t i : {0u, 1u, 4u}) bytes += ChannelsLastCopies::bytes(outputs[i], call.layouts.outputs, i);
  return bytes;
}

/// inputs (input, weight, bias, scale), outputs (output, argmax, mean, rstd, argmax_input)
void run_forward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Geometry geometry(call.inputs[0].shape(), attributes);
  const Scratch scratch(geometry, call.inputs[0].dtype());
  ChannelsLastCopies copies(call.scratch.data() + scratch.copies);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    dispatch_argmax(argmax_dtype(geometry.kernel_elements()), [&]<class Index>() {
      const Forward<T, Index> forward{.geometry = geometry,
                                      .blocks = scratch.blocks,
                                      .input = copies.read<T>(call.inputs[0]),
                                      .weight = call.inputs[1].data<T>(),
                                      .bias = call.inputs[2].data<T>(),
                                      .scale = call.inputs[3].data<T>(),
                                      .clamp = Clamp<T>(attributes.clamp()),
                                      .eps = attributes.eps,
                                      .output = copies.write<T>(call.outputs[0]),
                                      .argmax = copies.write<Index>(call.outputs[1]),
                                      .argmax_input = copies.write<T>(call.outputs[4]),
                                      .means = data_or_null<double>(call.outputs[2]),
                                      .rstds = data_or_null<double>(call.outputs[3]),
                                      .sums = scratch_part<DifferenceSums>(call, scratch.sums),
                                      .maps = scratch_part<GroupMap<T>>(call, scratch.maps),
                                      .signs = scratch_part<T>(call, scratch.signs),
                                      .columns = scratch_part<KernelRange>(call, scratch.columns)};
      forward.run();
      copies.finish(call.outputs[0], forward.output);
      copies.finish(call.outputs[1], forward.argmax);
      copies.finish(call.outputs[4], forward.argmax_input);
    });
  });
}

/// Refuses windows that the kernels do not do: the fusion pass then leaves the chain as it is.
void require_supported(const InferContext& call, const Geometry& geometry) {
  const PoolGeometry& pool = geometry.pool;
  call.require(geometry.pixels() <= std::numeric_limits<std::int32_t>::max(), "an image must have less than 2^31 elements");
  constexpr std::int64_t most_columns = 2048, most_elements = std::int64_t{1} << 30;
  call.require((pool.kernel[2] - 1) * pool.dilation[2] < most_columns && geometry.kernel_elements() < most_elements, "kernel_size ",
               call.as<ChainAttributes>().kernel_size, " is too big");
  for (std::size_t axis = 1; axis <= 2; ++axis) {
    for (std::int64_t o = 0; o < pool.output[axis]; ++o) {
      const KernelRange inside = kernel_range(pool, axis, o, o);
      call.require(inside.begin < inside.end, "window ", o, " of an image axis of size ", pool.image[axis], " lies in the padding alone");
    }
  }
}

Values gradient_rule(const GradientContext& c) {
  if (!c.gradients[0]) return Values(c.inputs.size());
  Values gradients =
      emit("group_norm_scale_max_pool_clamp_backward",
           {c.gradients[0], c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[3], c.outputs[1], c.outputs[2], c.outputs[3], c.outputs[4]},
           c.attributes);
  gradients.resize(c.inputs.size());
  return gradients;
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<ChainAttributes>();
  const auto parameter = [&](std::size_t i) { return cast(inputs[i], inputs[0].dtype()); };
  const Value y = group_norm(inputs[0], a.num_groups, parameter(1), parameter(2), a.eps) * parameter(3);
  return {clamp(max_pool2d(y, a.pool()), a.min, a.max)};
}

/// The nodes are group_norm, multiply, max_pool2d, clamp.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType>) {
  const auto& norm = matched[0].as<GroupNormAttributes>();
  const auto& pool = matched[2].as<PoolOptions>();
  const auto& bounds = matched[3].as<ClampAttributes>();
  return ChainAttributes{.num_groups = norm.num_groups,
                         .eps = norm.eps,
                         .kernel_size = pool.kernel_size,
                         .stride = pool.stride,
                         .padding = pool.padding,
                         .dilation = pool.dilation,
                         .ceil_mode = pool.ceil_mode,
                         .min = bounds.min,
                         .max = bounds.max};
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& input, const ChainAttributes& attributes, Fill weight = Fill::normal, Fill scale = Fill::normal,
                         bool smooth = true) {
    const std::int64_t c = input[1];
    return Sample{.inputs = {input, {{c}, weight}, Shape{c}, {{c, 1, 1}, scale}}, .attributes = attributes, .smooth = smooth};
  };
  return {
      sample({2, 4, 6, 6}, {.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1}),
      sample({1, 3, 7, 5}, {.num_groups = 1, .eps = 0.1, .kernel_size = {2}, .min = -1, .max = std::nullopt}),
      sample({2, 2, 5, 7}, {.num_groups = 2, .kernel_size = {3}, .stride = {2}, .padding = {1}, .min = -0.5, .max = 0.75}),
      sample({1, 2, 6, 5}, {.num_groups = 1, .kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}, .max = 1}),
      sample({1, 1, 5, 7}, {.num_groups = 1, .kernel_size = {4, 3}, .stride = {4, 3}, .ceil_mode = true, .min = -1}),
      sample({1, 2, 8, 9}, {.num_groups = 1, .kernel_size = {4}, .min = -1, .max = 1}, Fill::zeros, Fill::normal, false),
      sample({1, 2, 5, 5}, {.num_groups = 2, .kernel_size = {2}, .stride = {5}, .min = 0.5, .max = -0.5}, Fill::normal, Fill::zeros, false),
      sample({1, 1, 17, 18}, {.num_groups = 1, .kernel_size = {17}, .min = -2, .max = 2}),
      sample({1, 2, 1, 261}, {.num_groups = 1, .kernel_size = {1, 2}, .min = 0, .max = 1}, Fill::normal, Fill::normal, false),
      sample({0, 4, 6, 6}, {.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1}),
      // Channels in vectors, with windows cut short at the right and at the bottom; the last with more samples than a device does at a
      // time.
      sample({3, 12, 13, 14}, {.num_groups = 2, .kernel_size = {2}, .min = -1, .max = 1}, Fill::normal, Fill::normal, false),
      sample({3, 12, 13, 14}, {.num_groups = 2, .kernel_size = {3}, .min = -1, .max = 2}, Fill::normal, Fill::normal, false),
      sample({3, 12, 13, 14}, {.num_groups = 2, .kernel_size = {4}, .min = 0, .max = 1}, Fill::normal, Fill::normal, false),
      sample({3, 24, 13, 14}, {.num_groups = 4, .kernel_size = {4}, .min = -2, .max = 2}, Fill::normal, Fill::normal, false),
      sample({270, 8, 5, 6}, {.num_groups = 2, .kernel_size = {2}, .min = -1, .max = 1}, Fill::normal, Fill::normal, false)};
}

}  // namespace

std::vector<TensorType> group_norm_scale_max_pool_clamp_types(const InferContext& call, std::size_t input) {
  const Shape& shape = call.shape(input);
  const DType dtype = call.inputs[input].dtype;
  const auto& attributes = call.as<ChainAttributes>();
  call.require(shape.rank() == 4, "expected input (N, C, H, W), got ", shape);
  call.require(attributes.num_groups > 0, "num_groups must be greater than 0, got ", attributes.num_groups);
  call.require(shape[1] % attributes.num_groups == 0, "the number of channels must be divisible by num_groups, got input ", shape,
               " and num_groups ", attributes.num_groups);
  call.require(element_count(shape) != attributes.num_groups, "expected more than 1 value per group, got input ", shape, " and num_groups ",
               attributes.num_groups);
  const Geometry geometry(shape, attributes);
  require_supported(call, geometry);
  require_parameter(call, input + 1, dtype, {shape[1]});
  require_parameter(call, input + 2, dtype, {shape[1]});
  require_parameter(call, input + 3, dtype, {shape[1], 1, 1});
  const Shape output = pool_output_shape(shape, geometry.pool);
  const TensorType statistics{DType::f64, {geometry.samples, geometry.groups}};
  return {{dtype, output}, {argmax_dtype(geometry.kernel_elements()), output}, statistics, statistics, {dtype, output}};
}

}  // namespace frit::ops

FRIT_OPERATORS(group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "group_norm_scale_max_pool_clamp",
      .summary = "clamp(max_pool2d(group_norm(input, num_groups, weight, bias, eps) * scale), min, max)",
      .inputs = {"input", "weight", "bias", "scale"},
      .outputs = {"output", "argmax", "mean", "rstd", "argmax_input"},
      .infer = [](const InferContext& call) { return group_norm_scale_max_pool_clamp_types(call, 0); },
      .gradient = gradient_rule,
      .decompose = decompose,
      .fuse = fuse,
      .samples_in = samples_of_input_0,
      .any_precision = {1, 2, 3},
      .cpu = {.run = run_forward, .scratch = scratch_bytes, .any_layout_inputs = {0}, .any_layout_outputs = {0, 1, 4}},
      .samples = samples,
  });
}
