#include <array>

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/chain/stages/channel_lanes.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// What one channel of one sample adds to the gradients.
struct ChannelSums {
  NormGradientSums norm;  ///< of the gradient of the norm's result
  double scale = 0, input_gradient = 0;
};

/// Where the elements of windows lie in a plane: begins[window] + offsets[element of the kernel].
struct WindowPlaces {
  std::int32_t *begins, *offsets;

  void fill(const Geometry& geometry) const {
    const PoolGeometry& pool = geometry.pool;
    const auto place = [&](std::int64_t h, std::int64_t w) { return static_cast<std::int32_t>(h * pool.image[2] + w); };
    for (std::int64_t h = 0; h < pool.output[1]; ++h) {
      for (std::int64_t w = 0; w < pool.output[2]; ++w) {
        begins[h * pool.output[2] + w] = place(pool.window_begin(1, h), pool.window_begin(2, w));
      }
    }
    for (std::int64_t h = 0; h < pool.kernel[1]; ++h) {
      for (std::int64_t w = 0; w < pool.kernel[2]; ++w) offsets[h * pool.kernel[2] + w] = place(h * pool.dilation[1], w * pool.dilation[2]);
    }
  }
};

/// First the sums over each sample, for which the small tensors are enough; then one pass over it that writes the input's gradient.
template <class T, class Index>
struct Backward {
  Geometry geometry;
  EvenBlocks window_rows, image_rows;                 // blocks of them, whose sums are made alone
  const T *gradient, *input, *weight, *bias, *scale;  // the images here and below with their channels last
  Clamp<T> clamp;
  const Index* argmax;
  const double *means, *rstds;
  const T* argmax_input;
  T *input_gradient, *input_gradient_sums;  // whole; (C)
  WindowPlaces places;
  T* added;                  // what the input's gradient has more at the maxima, like the gradient
  ChannelSums* sums;         // (N, C)
  ChannelSums* block_sums;   // (N, blocks of window rows, C)
  double* differences;       // (N, blocks of image rows, C), of the input from the rounded mean
  NormInputGradient* rules;  // (N, G)

  ScaledGroupChannel<T> channel(std::int64_t sample, std::int64_t c) const {
    const std::int64_t slice = sample * geometry.groups + c / geometry.group_channels();
    return {means[slice], rstds[slice], weight[c], bias[c], scale[c]};
  }

  /// Sums over the maxima of a block of rows of windows.
  void sum_block(std::int64_t sample, std::int64_t block) const {
    const std::int64_t width = geometry.pool.output[2], windows = window_rows.length_of(block) * width;
    const std::int64_t begin = (sample * geometry.windows() + window_rows.begin(block) * width) * geometry.channels;
    ChannelSums* const result = block_sums + (sample * window_rows.count + block) * geometry.channels;
    std::fill_n(result, geometry.channels, ChannelSums());
    ChannelLanes::for_each(geometry.channels, [&](const ChannelLanes& lanes) {
      ArgmaxLanes of_lanes(lanes, [&](std::int64_t c) { return channel(sample, c); });
      lanes.for_each_step(lanes.first, windows, [&](std::int64_t first, std::int64_t count) {
        const std::int64_t i = begin + first;
        of_lanes.add(gradient + i, argmax_input + i, added + i, static_cast<std::size_t>(count), clamp);
      });
      of_lanes.add_to(lanes, result);
    });
  }

  /// Lanes of channels, and their sums.
  struct ArgmaxLanes {
    using Numbers = std::array<double, ChannelLanes::most>;
    Numbers mean, slope, shift, scale;
    Numbers gradient_sum{}, product_sum{}, scale_sum{};

    template <class Channel>
    ArgmaxLanes(const ChannelLanes& lanes, const Channel& channel)
        : mean(lanes.of([&](std::int64_t c) { return channel(c).mean; })),
          slope(lanes.of([&](std::int64_t c) { return channel(c).slope; })),
          shift(lanes.of([&](std::int64_t c) { return channel(c).shift; })),
          scale(lanes.of([&](std::int64_t c) { return channel(c).scale; })) {}

    void add(const T* g, const T* x, T* more, std::size_t count, const Clamp<T> bounds) {
      std::array<T, ChannelLanes::most> normalized, passed;
      Numbers centered;
      for (std::size_t i = 0; i < count; ++i) {
        centered[i] = static_cast<double>(x[i]) - mean[i];
        normalized[i] = static_cast<T>(centered[i] * slope[i] + shift[i]);
      }
      for (std::size_t i = 0; i < count; ++i) passed[i] = bounds.gradient(g[i], normalized[i] * static_cast<T>(scale[i]));
      for (std::size_t i = 0; i < count; ++i) {
        const double entering = static_cast<double>(passed[i] * static_cast<T>(scale[i]));
        gradient_sum[i] += entering;
        product_sum[i] += entering * centered[i];
        scale_sum[i] += static_cast<double>(passed[i]) * static_cast<double>(normalized[i]);
        more[i] = static_cast<T>(entering * slope[i]);
      }
    }
    void add_to(const ChannelLanes& lanes, ChannelSums* of_channels) const {
      for (std::int64_t lane = 0; lane < lanes.count; ++lane) {
        const auto i = static_cast<std::size_t>(lane);
        ChannelSums& sum = of_channels[lanes.channel(lane)];
        sum.norm += {gradient_sum[i], product_sum[i]};
        sum.scale += scale_sum[i];
      }
    }
  };

  /// The gradient that every element of a channel gets from being 0 in front of its factors: NaN if one of them is not finite.
  static double elsewhere(const ScaledGroupChannel<T>& channel) { return 0 * channel.slope * static_cast<double>(channel.scale); }

  void finalize(std::int64_t sample, std::int64_t group) const {
    const std::int64_t slice = sample * geometry.groups + group;
    NormGradientSums total;
    for (std::int64_t c = group * geometry.group_channels(); c < (group + 1) * geometry.group_channels(); ++c) {
      const ScaledGroupChannel<T> of_channel = channel(sample, c);
      // Elsewhere than at the maxima the gradient is 0, which matters where it meets an infinity or NaN.
      const double zero = 0 * static_cast<double>(of_channel.scale);
      ChannelSums sum{.norm = {zero, zero}, .scale = 0 * (of_channel.slope + of_channel.shift)};
      for (std::int64_t block = 0; block < window_rows.count; ++block) {
        const ChannelSums& more = block_sums[(sample * window_rows.count + block) * geometry.channels + c];
        sum.norm += more.norm;
        sum.scale += more.scale;
      }
      const auto w = static_cast<double>(weight[c]);
      total += {w * sum.norm.gradient, w * sum.norm.product};
      sum.norm.product *= rstds[slice];
      sums[sample * geometry.channels + c] = sum;
    }
    rules[slice] = NormInputGradient({means[slice], rstds[slice]}, total, geometry.group_pixels());
  }

  /// Lanes of channels: the input's gradient but for the maxima as (x - reference) * slope + offset. The reference is the mean, rounded.
  struct InputLanes {
    std::array<T, ChannelLanes::most> reference{}, slope{}, offset{};
    std::array<double, ChannelLanes::most> differences{};

    void set(std::size_t lane, const NormInputGradient& rule, double gradient_elsewhere) {
      reference[lane] = static_cast<T>(rule.mean);
      slope[lane] = static_cast<T>(rule.slope);
      const double moved = (static_cast<double>(reference[lane]) - rule.mean) * rule.slope;
      offset[lane] = static_cast<T>(gradient_elsewhere * rule.rstd + moved + rule.offset);
    }
    void add_differences(const T* x, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) differences[i] += static_cast<double>(x[i] - reference[i]);
    }
    void write(const T* x, T* dx, std::size_t count) const {
      FRIT_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < count; ++i) dx[i] = (x[i] - reference[i]) * slope[i] + offset[i];
    }
  };

  /// Goes over a block of rows of the image.
  void pass_over(std::int64_t sample, std::int64_t block) const {
    const std::int64_t width = geometry.pool.image[2], pixels = image_rows.length_of(block) * width;
    const std::int64_t begin = (sample * geometry.pixels() + image_rows.begin(block) * width) * geometry.channels;
    double* const result = differences + (sample * image_rows.count + block) * geometry.channels;
    std::fill_n(result, geometry.channels, 0.0);
    ChannelLanes::for_each(geometry.channels, [&](const ChannelLanes& lanes) {
      InputLanes of_lanes;
      for (std::int64_t lane = 0; lane < lanes.count; ++lane) {
        const std::int64_t c = lanes.channel(lane);
        of_lanes.set(static_cast<std::size_t>(lane), rules[sample * geometry.groups + c / geometry.group_channels()],
                     elsewhere(channel(sample, c)));
      }
      lanes.for_each_step(lanes.first, pixels, [&](std::int64_t first, std::int64_t count) {
        const std::int64_t i = begin + first;
        if (input_gradient_sums != nullptr) of_lanes.add_differences(input + i, static_cast<std::size_t>(count));
        if (input_gradient != nullptr) of_lanes.write(input + i, input_gradient + i, static_cast<std::size_t>(count));
      });
      for (std::int64_t lane = 0; lane < lanes.count; ++lane) {
        result[lanes.channel(lane)] += of_lanes.differences[static_cast<std::size_t>(lane)];
      }
    });
    if (input_gradient != nullptr) add_maxima(sample, image_rows.begin(block), image_rows.length_of(block));
  }

  /// What the maxima in some rows of the image have more. Windows may overlap, and reach into other rows.
  void add_maxima(std::int64_t sample, std::int64_t first_row, std::int64_t rows) const {
    const PoolGeometry& pool = geometry.pool;
    const std::int64_t begin = first_row * pool.image[2], span = (pool.kernel[1] - 1) * pool.dilation[1] + 1;
    const auto pixels = static_cast<std::uint64_t>(rows * pool.image[2]);
    T* const dx = input_gradient + (sample * geometry.pixels() + begin) * geometry.channels;
    const std::int64_t beyond = first_row + pool.padding[1] - span;
    const std::int64_t first = beyond < 0 ? 0 : beyond / pool.stride[1] + 1;
    const std::int64_t last = std::min(pool.output[1] - 1, (first_row + rows - 1 + pool.padding[1]) / pool.stride[1]);
    for (std::int64_t window = first * pool.output[2]; window < (last + 1) * pool.output[2]; ++window) {
      const std::int64_t from = (sample * geometry.windows() + window) * geometry.channels;
      for (std::int64_t c = 0; c < geometry.channels; ++c) {
        const std::int64_t place = places.begins[window] + places.offsets[argmax[from + c]] - begin;
        if (static_cast<std::uint64_t>(place) < pixels) dx[place * geometry.channels + c] += added[from + c];
      }
    }
  }

  /// The sum over the input's gradient in a channel, whose maxima get the sum of their gradients times a slope.
  double input_gradient_sum(std::int64_t sample, std::int64_t c) const {
    const NormInputGradient& rule = rules[sample * geometry.groups + c / geometry.group_channels()];
    const ScaledGroupChannel<T> of_channel = channel(sample, c);
    const double count = static_cast<double>(geometry.pixels());
    double difference = count * (static_cast<double>(static_cast<T>(rule.mean)) - rule.mean);
    for (std::int64_t block = 0; block < image_rows.count; ++block) {
      difference += differences[(sample * image_rows.count + block) * geometry.channels + c];
    }
    const double of_maxima = of_channel.slope * sums[sample * geometry.channels + c].norm.gradient;
    return of_maxima + rule.slope * difference + count * rule(elsewhere(of_channel), rule.mean);
  }

  void run_sample(std::int64_t sample) const {
    parallel_for(window_rows.count, 1, [&](std::int64_t block, std::int64_t) { sum_block(sample, block); });
    for (std::int64_t group = 0; group < geometry.groups; ++group) finalize(sample, group);
    if (input_gradient == nullptr && input_gradient_sums == nullptr) return;
    parallel_for(image_rows.count, 1, [&](std::int64_t block, std::int64_t) { pass_over(sample, block); });
    for (std::int64_t c = 0; c < geometry.channels && input_gradient_sums != nullptr; ++c) {
      sums[sample * geometry.channels + c].input_gradient = input_gradient_sum(sample, c);
    }
  }

  void run() const {
    places.fill(geometry);
    parallel_for(geometry.samples, sample_grain(geometry.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) run_sample(sample);
    });
  }

  /// Each sum over the batch, in order.
  void write_channel_gradients(T* weight_gradient, T* bias_gradient, T* scale_gradient) const {
    for (std::int64_t c = 0; c < geometry.channels; ++c) {
      ChannelSums total;
      for (std::int64_t slice = c; slice < geometry.samples * geometry.channels; slice += geometry.channels) {
        total.norm += sums[slice].norm;
        total.scale += sums[slice].scale;
        total.input_gradient += sums[slice].input_gradient;
      }
      if (weight_gradient != nullptr) weight_gradient[c] = static_cast<T>(total.norm.product);
      if (bias_gradient != nullptr) bias_gradient[c] = static_cast<T>(total.norm.gradient);
      if (scale_gradient != nullptr) scale_gradient[c] = static_cast<T>(total.scale);
      if (input_gradient_sums != nullptr) input_gradient_sums[c] = static_cast<T>(total.input_gradient);
    }
  }
};

/// The scratch memory.
struct Scratch {
  EvenBlocks window_rows, image_rows;
  ScratchParts all;
  std::size_t begins, offsets, added, sums, block_sums, differences, rules, copies;

  Scratch(const Geometry& geometry, DType dtype)
      : window_rows(row_blocks(geometry.pool.output[1], geometry.pool.output[2] * geometry.channels, 1)),
        image_rows(row_blocks(geometry.pool.image[1], geometry.pool.image[2] * geometry.channels,
                              std::min(geometry.pool.stride[1], geometry.pool.image[1]))) {
    const std::int64_t slices = geometry.samples * geometry.channels;
    begins = all.add(geometry.windows(), sizeof(std::int32_t));
    offsets = all.add(geometry.kernel_elements(), sizeof(std::int32_t));
    added = all.add(slices * geometry.windows(), size_of(dtype));
    sums = all.add(slices, sizeof(ChannelSums));
    block_sums = all.add(slices * window_rows.count, sizeof(ChannelSums));
    differences = all.add(slices * image_rows.count, sizeof(double));
    rules = all.add(geometry.slices(), sizeof(NormInputGradient));
    copies = all.bytes();
  }
};

std::size_t scratch_bytes(const InferContext& call) {
  std::size_t bytes = Scratch(Geometry(call.shape(1), call.as<ChainAttributes>()), call.inputs[1].dtype).copies;
  for (const std::size_t i : {0u, 1u, 5u, 8u}) bytes += ChannelsLastCopies::bytes(call.inputs[i], call.input_layout(i));
  return bytes + ChannelsLastCopies::bytes(call.inputs[1], call.layouts.outputs, 0);
}

/// inputs (gradient, input, weight, bias, scale, argmax, mean, rstd, argmax_input)
/// outputs (input_gradient, weight_gradient, bias_gradient, scale_gradient, input_gradient_sum)
void run(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Geometry geometry(call.inputs[1].shape(), attributes);
  const Scratch scratch(geometry, call.inputs[1].dtype());
  ChannelsLastCopies copies(call.scratch.data() + scratch.copies);
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    dispatch_argmax(call.inputs[5].dtype(), [&]<class Index>() {
      const Backward<T, Index> backward{
          .geometry = geometry,
          .window_rows = scratch.window_rows,
          .image_rows = scratch.image_rows,
          .gradient = copies.read<T>(call.inputs[0]),
          .input = copies.read<T>(call.inputs[1]),
          .weight = call.inputs[2].data<T>(),
          .bias = call.inputs[3].data<T>(),
          .scale = call.inputs[4].data<T>(),
          .clamp = Clamp<T>(attributes.clamp()),
          .argmax = copies.read<Index>(call.inputs[5]),
          .means = call.inputs[6].data<double>(),
          .rstds = call.inputs[7].data<double>(),
          .argmax_input = copies.read<T>(call.inputs[8]),
          .input_gradient = copies.write<T>(call.outputs[0]),
          .input_gradient_sums = data_or_null<T>(call.outputs[4]),
          .places = {scratch_part<std::int32_t>(call, scratch.begins), scratch_part<std::int32_t>(call, scratch.offsets)},
          .added = scratch_part<T>(call, scratch.added),
          .sums = scratch_part<ChannelSums>(call, scratch.sums),
          .block_sums = scratch_part<ChannelSums>(call, scratch.block_sums),
          .differences = scratch_part<double>(call, scratch.differences),
          .rules = scratch_part<NormInputGradient>(call, scratch.rules)};
      backward.run();
      copies.finish(call.outputs[0], backward.input_gradient);
      backward.write_channel_gradients(data_or_null<T>(call.outputs[1]), data_or_null<T>(call.outputs[2]),
                                       data_or_null<T>(call.outputs[3]));
    });
  });
}

std::vector<TensorType> infer(const InferContext& call) {
  const std::vector<TensorType> forward = group_norm_scale_max_pool_clamp_types(call, 1);
  require_type(call, 0, forward[0]);
  for (std::size_t i = 1; i < forward.size(); ++i) require_type(call, 4 + i, forward[i]);
  return {call.inputs[1], call.inputs[2], call.inputs[3], call.inputs[4], {call.inputs[1].dtype, {call.shape(1)[1]}}};
}

std::int64_t window_elements(const InferContext& call) { return Geometry(call.shape(1), call.as<ChainAttributes>()).kernel_elements(); }

std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (const Sample& sample : registry().find("group_norm_scale_max_pool_clamp").samples()) {
    const auto& attributes = sample.attributes.as<ChainAttributes>();
    if (!attributes.padding.empty()) continue;  // not every number is an argmax
    const Geometry geometry(sample.inputs[0].shape, attributes);
    const Shape output = pool_output_shape(sample.inputs[0].shape, geometry.pool);
    std::vector<SampleInput> inputs = sample.inputs;
    inputs.insert(inputs.begin(), SampleInput(output));
    const DType dtype = argmax_dtype(geometry.kernel_elements());
    inputs.push_back(attributes.ceil_mode ? SampleInput::integers(output, 1, dtype) : SampleInput::indices(output, dtype));
    inputs.insert(inputs.end(), 2, statistics_sample({geometry.samples, geometry.groups}));
    inputs.push_back(output);
    result.push_back({.inputs = inputs, .attributes = attributes});
  }
  return result;
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(group_norm_scale_max_pool_clamp_backward) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "group_norm_scale_max_pool_clamp_backward",
      .summary = "the gradients of group_norm_scale_max_pool_clamp",
      .inputs = {"gradient", "input", "weight", "bias", "scale", "argmax", "mean", "rstd", "argmax_input"},
      .outputs = {"input_gradient", "weight_gradient", "bias_gradient", "scale_gradient", "input_gradient_sum"},
      .infer = infer,
      .no_gradient = "not differentiable twice",
      .cpu = {.run = run, .scratch = scratch_bytes, .any_layout_inputs = {0, 1, 5, 8}, .any_layout_outputs = {0}},
      .in_place = {{0, 1}},
      .channel_sums = {{4, 0}},
      .index_inputs = {{5, window_elements}},
      .samples = samples,
  });
}
