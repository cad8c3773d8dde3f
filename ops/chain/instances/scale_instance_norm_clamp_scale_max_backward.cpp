#include <algorithm>
#include <array>

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/chain/stages/channel_lanes.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// What one channel of one sample adds to the gradients.
struct InstanceSums {
  NormGradientSums norm;
  double scale = 0, post_scale = 0, input_gradient = 0;
};

/// What a channel of a sample is computed with. The product with the scale is not rounded to T, which would cost data far from zero their
/// digits.
template <class T>
struct Channel {
  T scale, post_scale;
  double mean, rstd;
  double slope, offset;  ///< as in NormInputGradient

  double centered(T x) const { return static_cast<double>(x) * static_cast<double>(scale) - mean; }
  /// The input's gradient at x, given that which enters the norm.
  T input_gradient(T entering, T x) const {
    const double of_norm = static_cast<double>(entering) * rstd + centered(x) * slope + offset;
    return static_cast<T>(of_norm * static_cast<double>(scale));
  }
};

/// Pixels whose maxima are looked at together.
constexpr std::int64_t most_values = 256;

/// First the sums over each sample, for which the small tensors are enough; then one pass over it that writes the input's gradient.
template <class T, class Index>
struct Backward {
  Planes planes;
  EvenBlocks blocks;  // of pixels, whose sums are made alone
  const T *gradient, *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  const Index* argmax;
  const double *means, *rstds;
  const T* argmax_input;
  T* input_gradient;         // the input's and it with their channels last
  T* entering;               // (N, pixels), the gradient that enters the norm at the maximum
  InstanceSums* sums;        // (N, C)
  InstanceSums* block_sums;  // (N, blocks, C)
  Channel<T>* channels;      // (N, C)

  /// One step a pixel: only the argmax has a gradient.
  void sum_block(std::int64_t sample, std::int64_t block) const {
    InstanceSums* const total = block_sums + (sample * blocks.count + block) * planes.channels;
    std::fill_n(total, planes.channels, InstanceSums());
    const std::int64_t end = sample * planes.pixels + blocks.begin(block) + blocks.length_of(block);
    for (std::int64_t i = end - blocks.length_of(block); i < end; i += most_values) {
      add_argmax(channels + sample * planes.channels, i, static_cast<std::size_t>(std::min(most_values, end - i)), total);
    }
  }

  /// The additions, which wait for one another, have a loop of their own, as has what becomes vector code.
  void add_argmax(const Channel<T>* of_sample, std::int64_t begin, std::size_t count, InstanceSums* total) const {
    std::array<T, most_values> normalized, clamped;
    std::array<double, most_values> centered;
    const Index* const w = argmax + begin;
    const T *const g = gradient + begin, *const x = argmax_input + begin;
    T* const entered = entering + begin;
    for (std::size_t i = 0; i < count; ++i) {
      const Channel<T>& channel = of_sample[w[i]];
      centered[i] = channel.centered(x[i]);
      normalized[i] = static_cast<T>(centered[i] * channel.rstd);
      entered[i] = g[i] * channel.post_scale;
    }
    const Clamp<T> bounds = clamp;
    for (std::size_t i = 0; i < count; ++i) {
      clamped[i] = bounds(normalized[i]);
      entered[i] = bounds.gradient(entered[i], normalized[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      InstanceSums& sum = total[w[i]];
      sum.norm += {static_cast<double>(entered[i]), static_cast<double>(entered[i]) * centered[i]};
      sum.post_scale += static_cast<double>(g[i]) * static_cast<double>(clamped[i]);
    }
  }

  /// The norm undoes the scale but for eps: the sum of dz * x, where z = x * scale, is eps rstd^3 times that of entering * (x - mean of x).
  double scale_gradient(std::int64_t sample, std::int64_t c, double product) const {
    const double rstd = rstds[sample * planes.channels + c];
    if (scale[c] != 0) {
      product /= static_cast<double>(scale[c]);
    } else if (planes.pixels > 0) {
      const T* const x = input + sample * planes.pixels * planes.channels + c;
      const double pivot = static_cast<double>(*x);
      const double difference =
          sum_in_lanes(planes.pixels, [&](std::int64_t i) { return static_cast<double>(x[i * planes.channels]) - pivot; });
      const double mean = pivot + difference / static_cast<double>(planes.pixels);
      product = 0;
      for (std::int64_t i = sample * planes.pixels; i < (sample + 1) * planes.pixels; ++i) {
        if (argmax[i] == static_cast<Index>(c)) product += static_cast<double>(entering[i]) * (static_cast<double>(argmax_input[i]) - mean);
      }
    }
    return eps * rstd * rstd * rstd * product;
  }

  /// Elsewhere than at the maxima the gradient is 0, which matters where it meets an infinity or NaN.
  void finalize(std::int64_t sample, std::int64_t c) const {
    Channel<T>& channel = channels[sample * planes.channels + c];
    const double zero = 0 * static_cast<double>(channel.post_scale);
    InstanceSums total{.norm = {zero, zero}, .post_scale = 0 * channel.rstd};
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      const InstanceSums& more = block_sums[(sample * blocks.count + block) * planes.channels + c];
      total.norm += more.norm;
      total.post_scale += more.post_scale;
    }
    total.scale = scale_gradient(sample, c, total.norm.product);
    const NormInputGradient rule({channel.mean, channel.rstd}, total.norm, planes.pixels);
    channel.slope = rule.slope;
    channel.offset = rule.offset;
    // The sum over the input's gradient: the norm makes it 0 if all is finite, and else it is NaN.
    const double all = (rule.mean + rule.rstd + rule.slope + rule.offset) * static_cast<double>(scale[c]);
    total.input_gradient = planes.pixels == 0 ? 0 : 0 * all;
    sums[sample * planes.channels + c] = total;
  }

  void write_block(std::int64_t sample, std::int64_t block) const {
    const std::int64_t end = sample * planes.pixels + blocks.begin(block) + blocks.length_of(block);
    for (std::int64_t i = end - blocks.length_of(block); i < end; i += most_values) {
      write_pixels(channels + sample * planes.channels, i, std::min(most_values, end - i));
    }
  }

  /// The maxima are read before the gradient is written, which may lie on the input.
  void write_pixels(const Channel<T>* of_sample, std::int64_t begin, std::int64_t count) const {
    const T* const x = input + begin * planes.channels;
    T* const dx = input_gradient + begin * planes.channels;
    const auto place = [&](std::int64_t i) { return i * planes.channels + static_cast<std::int64_t>(argmax[begin + i]); };
    std::array<T, most_values> maxima;
    for (std::int64_t i = 0; i < count; ++i) maxima[static_cast<std::size_t>(i)] = x[place(i)];
    ChannelLanes::for_each(planes.channels, [&](const ChannelLanes& lanes) {
      const auto factor = lanes.of([&](std::int64_t c) { return of_sample[c].scale; });
      const auto mean = lanes.of([&](std::int64_t c) { return of_sample[c].mean; });
      const auto slope = lanes.of([&](std::int64_t c) { return of_sample[c].slope; });
      const auto offset = lanes.of([&](std::int64_t c) { return 0 * of_sample[c].rstd + of_sample[c].offset; });
      lanes.for_each_step(lanes.first, count, [&](std::int64_t first, std::int64_t width) {
        FRIT_INDEPENDENT_ITERATIONS
        for (std::int64_t j = 0; j < width; ++j) {
          const auto i = static_cast<std::size_t>(j);
          dx[first + j] = static_cast<T>(((static_cast<double>(x[first + j]) * factor[i] - mean[i]) * slope[i] + offset[i]) * factor[i]);
        }
      });
    });
    for (std::int64_t i = 0; i < count; ++i) {
      dx[place(i)] = of_sample[argmax[begin + i]].input_gradient(entering[begin + i], maxima[static_cast<std::size_t>(i)]);
    }
  }

  void run_sample(std::int64_t sample) const {
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      const std::int64_t slice = sample * planes.channels + c;
      channels[slice] = {scale[c], post_scale[c], means[slice], rstds[slice], 0, 0};
    }
    parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) { sum_block(sample, block); });
    parallel_for(planes.channels, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) finalize(sample, c);
    });
    if (input_gradient != nullptr) parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) { write_block(sample, block); });
  }

  void run() const {
    parallel_for(planes.samples, sample_grain(planes.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) run_sample(sample);
    });
  }

  /// The field summed over the batch, in order.
  void write_parameter_gradient(const Tensor& result, double InstanceSums::*field) const {
    if (!result.defined()) return;
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      double total = 0;
      for (std::int64_t sample = 0; sample < planes.samples; ++sample) total += sums[sample * planes.channels + c].*field;
      result.data<T>()[c] = static_cast<T>(total);
    }
  }
};

/// The scratch memory.
struct Scratch {
  EvenBlocks blocks;
  ScratchParts all;
  std::size_t entering, sums, block_sums, channels, copies;

  explicit Scratch(const Planes& planes) : blocks(channel_sum_blocks(planes.channels, planes.pixels)) {
    const std::int64_t slices = planes.samples * planes.channels;
    entering = all.add(planes.samples * planes.pixels, sizeof(double));
    sums = all.add(slices, sizeof(InstanceSums));
    block_sums = all.add(slices * blocks.count, sizeof(InstanceSums));
    channels = all.add(slices, sizeof(Channel<double>));
    copies = all.bytes();
  }
};

std::size_t scratch_bytes(const InferContext& call) {
  return Scratch(Planes(call.shape(1))).copies + 2 * ChannelsLastCopies::bytes(call.inputs[1], call.input_layout(1));
}

/// inputs (gradient, input, scale, post_scale, argmax, mean, rstd, argmax_input)
/// outputs (input_gradient, scale_gradient, post_scale_gradient, input_gradient_sum)
void run(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(call.inputs[1].shape());
  const Scratch scratch(planes);
  ChannelsLastCopies copies(call.scratch.data() + scratch.copies);
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    dispatch_argmax(call.inputs[4].dtype(), [&]<class Index>() {
      const Backward<T, Index> backward{.planes = planes,
                                        .blocks = scratch.blocks,
                                        .gradient = call.inputs[0].data<T>(),
                                        .input = copies.read<T>(call.inputs[1]),
                                        .scale = call.inputs[2].data<T>(),
                                        .post_scale = call.inputs[3].data<T>(),
                                        .clamp = Clamp<T>(attributes.clamp()),
                                        .eps = attributes.eps,
                                        .argmax = call.inputs[4].data<Index>(),
                                        .means = call.inputs[5].data<double>(),
                                        .rstds = call.inputs[6].data<double>(),
                                        .argmax_input = call.inputs[7].data<T>(),
                                        .input_gradient = copies.write<T>(call.outputs[0]),
                                        .entering = scratch_part<T>(call, scratch.entering),
                                        .sums = scratch_part<InstanceSums>(call, scratch.sums),
                                        .block_sums = scratch_part<InstanceSums>(call, scratch.block_sums),
                                        .channels = scratch_part<Channel<T>>(call, scratch.channels)};
      backward.run();
      copies.finish(call.outputs[0], backward.input_gradient);
      backward.write_parameter_gradient(call.outputs[1], &InstanceSums::scale);
      backward.write_parameter_gradient(call.outputs[2], &InstanceSums::post_scale);
      backward.write_parameter_gradient(call.outputs[3], &InstanceSums::input_gradient);
    });
  });
}

std::vector<TensorType> infer(const InferContext& call) {
  const std::vector<TensorType> forward = scale_instance_norm_clamp_scale_max_types(call, 1);
  require_type(call, 0, forward[0]);
  for (std::size_t i = 1; i < forward.size(); ++i) require_type(call, 3 + i, forward[i]);
  return {call.inputs[1], call.inputs[2], call.inputs[3], {call.inputs[1].dtype, {call.shape(1)[1]}}};
}

std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (const Sample& sample : registry().find("scale_instance_norm_clamp_scale_max").samples()) {
    const Shape& input = sample.inputs[0].shape;
    const Shape reduced = reduced_shape(input, {1}, sample.attributes.as<ChainAttributes>().keep_dims);
    const SampleInput statistics = statistics_sample({input[0], input[1]});
    result.push_back({.inputs = {reduced, sample.inputs[0], sample.inputs[1], sample.inputs[2],
                                 SampleInput::indices(reduced, argmax_dtype(input[1])), statistics, statistics, reduced},
                      .attributes = sample.attributes});
  }
  return result;
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(scale_instance_norm_clamp_scale_max_backward) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "scale_instance_norm_clamp_scale_max_backward",
      .summary = "the gradients of scale_instance_norm_clamp_scale_max",
      .inputs = {"gradient", "input", "scale", "post_scale", "argmax", "mean", "rstd", "argmax_input"},
      .outputs = {"input_gradient", "scale_gradient", "post_scale_gradient", "input_gradient_sum"},
      .infer = infer,
      .no_gradient = "not differentiable twice",
      .cpu = {.run = run,
              .scratch = scratch_bytes,
              .any_layout_inputs = {1},
              .any_layout_outputs = {0},
              .one_layout = true,
              .prefers_channels_last = true},
      .in_place = {{0, 1}},
      .channel_sums = {{3, 0}},
      .index_inputs = {{4, [](const InferContext& call) { return call.shape(1)[1]; }}},
      .samples = samples,
  });
}
