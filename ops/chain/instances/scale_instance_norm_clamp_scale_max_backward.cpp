#include <array>

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// What one channel of one sample adds to the gradients.
struct InstanceSums {
  NormGradientSums norm;
  double scale = 0, post_scale = 0, input_gradient = 0;
};

/// First the sums over each sample, for which the small tensors are enough; then one pass over it that writes the input's gradient.
template <class T, class Index>
struct Backward {
  Planes planes;
  const T *gradient, *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  const Index* argmax;
  const double *means, *rstds;
  const T* argmax_input;
  T* input_gradient;
  InstanceSums* sums;  // (N, C)

  ScaledInstance<T> instance(std::int64_t sample, std::int64_t c) const {
    const std::int64_t slice = sample * planes.channels + c;
    return {scale[c], post_scale[c], means[slice], rstds[slice]};
  }
  const T* plane(std::int64_t sample, std::int64_t c) const { return input + (sample * planes.channels + c) * planes.pixels; }

  /// One step a pixel: only the winning channel has a gradient. Elsewhere it is 0, which matters where it meets an infinity or NaN.
  void sum_over_argmax(std::int64_t sample) const {
    InstanceSums* const sample_sums = sums + sample * planes.channels;
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      const ScaledInstance<T> channel = instance(sample, c);
      const double zero = 0 * static_cast<double>(channel.post_scale);
      sample_sums[c] = {.norm = {zero, zero}, .post_scale = 0 * channel.rstd};
    }
    // The additions, which wait for one another, have a loop of their own; the others become vector code.
    std::array<T, most_block_pixels> normalized, entering, clamped;
    std::array<double, most_block_pixels> centered;
    for (std::int64_t first = 0; first < planes.pixels; first += most_block_pixels) {
      const auto count = static_cast<std::size_t>(std::min(most_block_pixels, planes.pixels - first));
      const Index* const w = argmax + sample * planes.pixels + first;
      const T* const g = gradient + sample * planes.pixels + first;
      const T* const x = argmax_input + sample * planes.pixels + first;
      for (std::size_t i = 0; i < count; ++i) {
        const ScaledInstance<T> of_maximum = instance(sample, static_cast<std::int64_t>(w[i]));
        entering[i] = g[i] * of_maximum.post_scale;
        centered[i] = of_maximum.centered(x[i]);
        normalized[i] = of_maximum.normalized(x[i]);
      }
      for (std::size_t i = 0; i < count; ++i) {
        entering[i] = clamp.gradient(entering[i], normalized[i]);
        clamped[i] = clamp(normalized[i]);
      }
      for (std::size_t i = 0; i < count; ++i) {
        InstanceSums& sum = sample_sums[w[i]];
        sum.norm += {static_cast<double>(entering[i]), static_cast<double>(entering[i]) * centered[i]};
        sum.post_scale += static_cast<double>(g[i]) * static_cast<double>(clamped[i]);
      }
    }
  }

  /// The gradient that enters the norm at `count` pixels of one channel; 0 where another one won.
  void find_entering(std::int64_t sample, std::int64_t c, std::int64_t first, std::int64_t count, T* entering) const {
    const ScaledInstance<T> channel = instance(sample, c);
    const Index* const w = argmax + sample * planes.pixels + first;
    const T* const g = gradient + sample * planes.pixels + first;
    const T* const x = argmax_input + sample * planes.pixels + first;
    for (std::int64_t i = 0; i < count; ++i) {
      const T passed = clamp.gradient(g[i] * channel.post_scale, channel.normalized(x[i]));
      entering[i] = w[i] == static_cast<Index>(c) ? passed : T(0);
    }
  }

  /// The norm undoes the scale but for eps: the sum of dz * x, where z = x * scale, is eps rstd^3 times that of entering * (x - mean of x).
  double scale_gradient(std::int64_t sample, std::int64_t c) const {
    const ScaledInstance<T> channel = instance(sample, c);
    double product = sums[sample * planes.channels + c].norm.product / static_cast<double>(channel.scale);
    if (channel.scale == 0) {
      const auto x = [p = plane(sample, c)](std::int64_t i) { return p[i]; };
      const double mean = slice_statistics(planes.pixels, x, eps).mean;
      const Index* const w = argmax + sample * planes.pixels;
      product = 0;
      for (std::int64_t i = 0; i < planes.pixels; ++i) {
        if (w[i] != static_cast<Index>(c)) continue;
        T entering;
        find_entering(sample, c, i, 1, &entering);
        product += static_cast<double>(entering) * (static_cast<double>(argmax_input[sample * planes.pixels + i]) - mean);
      }
    }
    return eps * channel.rstd * channel.rstd * channel.rstd * product;
  }

  NormInputGradient rule_of(std::int64_t sample, std::int64_t c) const {
    const std::int64_t slice = sample * planes.channels + c;
    return {{means[slice], rstds[slice]}, sums[slice].norm, planes.pixels};
  }
  /// The sum over the input's gradient: the norm makes it 0 if all is finite, and else it is NaN.
  double input_gradient_sum(std::int64_t sample, std::int64_t c) const {
    const NormInputGradient rule = rule_of(sample, c);
    return planes.pixels == 0 ? 0 : 0 * ((rule.mean + rule.rstd + rule.slope + rule.offset) * static_cast<double>(scale[c]));
  }

  void write_input_gradient(std::int64_t sample, std::int64_t c) const {
    const ScaledInstance<T> channel = instance(sample, c);
    const std::int64_t slice = sample * planes.channels + c;
    const NormInputGradient rule = rule_of(sample, c);
    std::array<T, most_block_pixels> entering;
    for (std::int64_t first = 0; first < planes.pixels; first += most_block_pixels) {
      const std::int64_t count = std::min(most_block_pixels, planes.pixels - first);
      find_entering(sample, c, first, count, entering.data());
      map_run(input_gradient + slice * planes.pixels + first, count,
              [&, g = entering.data(), x = plane(sample, c) + first](std::int64_t i) {
                return rule(static_cast<double>(g[i]), channel.scaled(x[i])) * static_cast<double>(channel.scale);
              });
    }
  }

  void run() const {
    parallel_for(planes.samples, sample_grain(planes.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) {
        sum_over_argmax(sample);
        parallel_for(planes.channels, 1, [&](std::int64_t c, std::int64_t) {
          InstanceSums& sum = sums[sample * planes.channels + c];
          sum.scale = scale_gradient(sample, c);
          sum.input_gradient = input_gradient_sum(sample, c);
          if (input_gradient != nullptr) write_input_gradient(sample, c);
        });
      }
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

/// inputs (gradient, input, scale, post_scale, argmax, mean, rstd, argmax_input)
/// outputs (input_gradient, scale_gradient, post_scale_gradient, input_gradient_sum)
void run(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(call.inputs[1].shape());
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    dispatch_argmax(call.inputs[4].dtype(), [&]<class Index>() {
      const Backward<T, Index> backward{.planes = planes,
                                        .gradient = call.inputs[0].data<T>(),
                                        .input = call.inputs[1].data<T>(),
                                        .scale = call.inputs[2].data<T>(),
                                        .post_scale = call.inputs[3].data<T>(),
                                        .clamp = Clamp<T>(attributes.clamp()),
                                        .eps = attributes.eps,
                                        .argmax = call.inputs[4].data<Index>(),
                                        .means = call.inputs[5].data<double>(),
                                        .rstds = call.inputs[6].data<double>(),
                                        .argmax_input = call.inputs[7].data<T>(),
                                        .input_gradient = data_or_null<T>(call.outputs[0]),
                                        .sums = reinterpret_cast<InstanceSums*>(call.scratch.data())};
      backward.run();
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
              .scratch =
                  [](const InferContext& call) {
                    return static_cast<std::size_t>(call.shape(1)[0] * call.shape(1)[1]) * sizeof(InstanceSums);
                  }},
      .in_place = {{0, 1}},
      .channel_sums = {{3, 0}},
      .index_inputs = {{4, [](const InferContext& call) { return call.shape(1)[1]; }}},
      .samples = samples,
  });
}
