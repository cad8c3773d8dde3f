// max over channels of clamp(instance_norm(input * scale)) * post_scale: what follows a convolution, in two walks over each sample, the second one
// in cache. The gradient that enters the norm is that of the winning channel alone, so its sums are taken over the output's pixels.

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max.h"

#include <array>

#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/fused/chain.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

constexpr std::int64_t most_block_pixels = 1024;

template <class T>
struct Forward {
  Planes planes;
  const T *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  T* output;
  double *means, *rstds;  // (N, C)

  void find_statistics(std::int64_t sample) const {
    parallel_for(planes.channels, 1, [&](std::int64_t c, std::int64_t) {
      const std::int64_t slice = sample * planes.channels + c;
      const auto scaled = [x = input + slice * planes.pixels, instance = ScaledInstance<T>{scale[c], post_scale[c], 0, 0}](std::int64_t i) {
        return instance.scaled(x[i]);
      };
      const SliceStatistics statistics = slice_statistics(planes.pixels, scaled, eps);
      means[slice] = statistics.mean;
      rstds[slice] = statistics.rstd;
    });
  }

  /// The maxima of `count` pixels from `first` on, and the channels that they are of, if `winners` is given.
  template <class Winner>
  void find_maxima(std::int64_t sample, std::int64_t first, std::int64_t count, Winner* winners) const {
    std::array<T, most_block_pixels> best;
    std::array<std::int32_t, most_block_pixels> winner;
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      const std::int64_t slice = sample * planes.channels + c;
      const T* const x = input + slice * planes.pixels + first;
      const ScaledInstance<T> instance{scale[c], post_scale[c], means[slice], rstds[slice]};
      const auto channel = static_cast<std::int32_t>(c);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const T value = clamp(instance.normalized(x[i])) * instance.post_scale, held = best[i];
        // The first of equal values wins, and the first NaN over everything.
        const bool wins = (channel == 0) | (value > held) | ((value != value) & (held == held));
        best[i] = wins ? value : held;
        winner[i] = wins ? channel : winner[i];
      }
    }
    const std::int64_t place = sample * planes.pixels + first;
    if (output != nullptr) std::copy_n(best.begin(), count, output + place);
    if (winners == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) winners[place + i] = static_cast<Winner>(winner[static_cast<std::size_t>(i)]);
  }

  template <class Winner>
  void run(Winner* winners) const {
    const EvenBlocks blocks(planes.pixels, most_block_pixels, 16);
    parallel_for(planes.samples, sample_grain(planes.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) {
        find_statistics(sample);
        parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) {
          find_maxima(sample, blocks.begin(block), blocks.length_of(block), winners);
        });
      }
    });
  }
};

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

/// inputs (input, scale, post_scale), outputs (output, winner, mean, rstd)
void run_forward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(call.inputs[0].shape());
  double* const workspace = reinterpret_cast<double*>(call.scratch.data());
  const auto statistics = [&](std::size_t i) {
    return call.outputs[i].defined() ? call.outputs[i].data<double>() : workspace + static_cast<std::int64_t>(i - 2) * planes.samples * planes.channels;
  };
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Forward<T> forward{planes, call.inputs[0].data<T>(), call.inputs[1].data<T>(), call.inputs[2].data<T>(), Clamp<T>(attributes.clamp()),
                             attributes.eps, data_or_null<T>(call.outputs[0]), statistics(2), statistics(3)};
    dispatch_winner(winner_dtype(planes.channels), [&]<class Winner>() { forward.run(data_or_null<Winner>(call.outputs[1])); });
  });
}

/// What one channel of one sample adds to the gradients.
struct InstanceSums {
  NormGradientSums norm;
  double scale = 0, post_scale = 0;
};

template <class T, class Winner>
struct Backward {
  Planes planes;
  const T *gradient, *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  const Winner* winners;
  const double *means, *rstds;
  T* input_gradient;
  InstanceSums* sums;  // (N, C)

  ScaledInstance<T> instance(std::int64_t sample, std::int64_t c) const {
    const std::int64_t slice = sample * planes.channels + c;
    return {scale[c], post_scale[c], means[slice], rstds[slice]};
  }
  const T* plane(std::int64_t sample, std::int64_t c) const { return input + (sample * planes.channels + c) * planes.pixels; }

  /// One step a pixel: only the winning channel's element has a gradient. Elsewhere it is 0, which matters where it meets an infinity or NaN.
  void sum_over_winners(std::int64_t sample) const {
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
      const Winner* const w = winners + sample * planes.pixels + first;
      const T* const g = gradient + sample * planes.pixels + first;
      for (std::size_t i = 0; i < count; ++i) {
        const auto c = static_cast<std::int64_t>(w[i]);
        const ScaledInstance<T> winner = instance(sample, c);
        const T x = plane(sample, c)[first + static_cast<std::int64_t>(i)];
        entering[i] = g[i] * winner.post_scale;
        centered[i] = winner.centered(x);
        normalized[i] = winner.normalized(x);
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

  /// The gradient that enters the norm at `count` pixels of one channel.
  void find_entering(std::int64_t sample, std::int64_t c, std::int64_t first, std::int64_t count, T* entering) const {
    const ScaledInstance<T> channel = instance(sample, c);
    const Winner* const w = winners + sample * planes.pixels + first;
    const T* const g = gradient + sample * planes.pixels + first;
    const T* const x = plane(sample, c) + first;
    for (std::int64_t i = 0; i < count; ++i) entering[i] = (w[i] == static_cast<Winner>(c) ? g[i] : T(0)) * channel.post_scale;
    for (std::int64_t i = 0; i < count; ++i) entering[i] = clamp.gradient(entering[i], channel.normalized(x[i]));
  }

  /// The norm undoes the scale but for eps: the sum of dz * x, where z = x * scale, is eps rstd^3 times that of entering * (x - mean of x).
  double scale_gradient(std::int64_t sample, std::int64_t c) const {
    const ScaledInstance<T> channel = instance(sample, c);
    double product = sums[sample * planes.channels + c].norm.product / static_cast<double>(channel.scale);
    if (channel.scale == 0) {
      const auto x = [p = plane(sample, c)](std::int64_t i) { return p[i]; };
      const auto entering = [&](std::int64_t i) {
        T result;
        find_entering(sample, c, i, 1, &result);
        return result;
      };
      product = norm_gradient_sums(planes.pixels, entering, x, slice_statistics(planes.pixels, x, eps).mean).product;
    }
    return eps * channel.rstd * channel.rstd * channel.rstd * product;
  }

  void write_input_gradient(std::int64_t sample, std::int64_t c) const {
    const ScaledInstance<T> channel = instance(sample, c);
    const std::int64_t slice = sample * planes.channels + c;
    const NormInputGradient rule({channel.mean, channel.rstd}, sums[slice].norm, planes.pixels);
    std::array<T, most_block_pixels> entering;
    for (std::int64_t first = 0; first < planes.pixels; first += most_block_pixels) {
      const std::int64_t count = std::min(most_block_pixels, planes.pixels - first);
      find_entering(sample, c, first, count, entering.data());
      map_run(input_gradient + slice * planes.pixels + first, count, [&, g = entering.data(), x = plane(sample, c) + first](std::int64_t i) {
        return rule(static_cast<double>(g[i]), channel.scaled(x[i])) * static_cast<double>(channel.scale);
      });
    }
  }

  void run() const {
    parallel_for(planes.samples, sample_grain(planes.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) {
        sum_over_winners(sample);
        parallel_for(planes.channels, 1, [&](std::int64_t c, std::int64_t) {
          sums[sample * planes.channels + c].scale = scale_gradient(sample, c);
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

/// inputs (gradient, input, scale, post_scale, winner, mean, rstd), outputs (input_gradient, scale_gradient, post_scale_gradient)
void run_backward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(call.inputs[1].shape());
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    dispatch_winner(call.inputs[4].dtype(), [&]<class Winner>() {
      const Backward<T, Winner> backward{planes,
                                         call.inputs[0].data<T>(),
                                         call.inputs[1].data<T>(),
                                         call.inputs[2].data<T>(),
                                         call.inputs[3].data<T>(),
                                         Clamp<T>(attributes.clamp()),
                                         attributes.eps,
                                         call.inputs[4].data<Winner>(),
                                         call.inputs[5].data<double>(),
                                         call.inputs[6].data<double>(),
                                         data_or_null<T>(call.outputs[0]),
                                         reinterpret_cast<InstanceSums*>(call.scratch.data())};
      backward.run();
      backward.write_parameter_gradient(call.outputs[1], &InstanceSums::scale);
      backward.write_parameter_gradient(call.outputs[2], &InstanceSums::post_scale);
    });
  });
}

/// Checks input number `input` and the two scales after it, and gives the types of (output, winner, mean, rstd).
std::vector<TensorType> chain_types(const InferContext& call, std::size_t input) {
  const Shape& shape = call.shape(input);
  call.require(shape.rank() >= 3, "expected an input (N, C, ...) of rank 3 or more, got ", shape);
  call.require(shape[1] > 0, "input ", shape, " has no channels");
  call.require(Planes(shape).pixels != 1, "expected more than 1 spatial element, got input ", shape);
  Shape per_channel = Dims::filled(shape.rank() - 1, 1);
  per_channel[0] = shape[1];
  const TensorType expected{call.inputs[input].dtype, per_channel};
  for (std::size_t i = input + 1; i <= input + 2; ++i) {
    call.require(call.inputs[i] == expected, call.op.inputs[i].name, " must be ", expected, ", got ", call.inputs[i], " (input ", shape, ")");
  }
  const Shape reduced = reduced_shape(shape, {1}, call.as<ChainAttributes>().keep_dims);
  const TensorType statistics{DType::f64, {shape[0], shape[1]}};
  return {{expected.dtype, reduced}, {winner_dtype(shape[1]), reduced}, statistics, statistics};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const std::vector<TensorType> forward = chain_types(call, 1);
  for (const auto& [input, result] : {std::pair{0, 0}, {4, 1}, {5, 2}, {6, 3}}) {
    const auto i = static_cast<std::size_t>(input), r = static_cast<std::size_t>(result);
    call.require(call.inputs[i] == forward[r], call.op.inputs[i].name, " must be ", forward[r], ", got ", call.inputs[i]);
  }
  return {call.inputs[1], call.inputs[2], call.inputs[3]};
}

Values gradient_rule(const GradientContext& c) {
  return emit("scale_instance_norm_clamp_scale_max_backward",
              {c.gradients[0], c.inputs[0], c.inputs[1], c.inputs[2], c.outputs[1], c.outputs[2], c.outputs[3]}, c.attributes);
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<ChainAttributes>();
  const Value y = clamp(instance_norm(inputs[0] * inputs[1], {}, {}, a.eps), a.min, a.max) * inputs[2];
  return {max(y, Dims{1}, a.keep_dims)};
}

/// The nodes are multiply, instance_norm, clamp, multiply, max.
std::optional<Attributes> fuse(std::span<const Attributes> matched) {
  const auto& bounds = matched[2].as<ClampAttributes>();
  return ChainAttributes{.eps = matched[1].as<InstanceNormAttributes>().eps,
                         .min = bounds.min,
                         .max = bounds.max,
                         .keep_dims = matched[4].as<AxisReductionAttributes>().keep_dims};
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& input, const ChainAttributes& attributes, Fill scale = Fill::normal, bool smooth = true) {
    Shape per_channel = Dims::filled(input.rank() - 1, 1);
    per_channel[0] = input[1];
    return Sample{.inputs = {input, {per_channel, scale}, per_channel}, .attributes = attributes, .smooth = smooth};
  };
  return {sample({2, 4, 2, 3, 3}, {.min = -1, .max = 1}),
          sample({1, 5, 3, 5}, {.eps = 0.1, .min = -0.5, .max = 0.75, .keep_dims = true}),
          sample({3, 3, 7}, {.min = -0.25, .max = std::nullopt}),
          sample({2, 1, 5}, {.eps = 0.5, .min = -1, .max = 1}, Fill::zeros),
          sample({2, 3, 2, 2}, {.min = std::nullopt, .max = 0.5}, Fill::zeros, false),
          sample({1, 2, 1, 1, 1031}, {.min = 0.25, .max = -0.25, .keep_dims = true}, Fill::normal, false),
          sample({1, 300, 2}, {.min = -1, .max = 1}, Fill::ones, false),
          sample({0, 4, 2, 3, 3}, {.min = -1, .max = 1})};
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result;
  for (const Sample& sample : samples()) {
    const Shape& input = sample.inputs[0].shape;
    const Shape reduced = reduced_shape(input, {1}, sample.attributes.as<ChainAttributes>().keep_dims);
    SampleInput statistics({input[0], input[1]}, Fill::positive);
    statistics.floating = false;
    statistics.dtype = DType::f64;
    result.push_back({.inputs = {reduced, sample.inputs[0], sample.inputs[1], sample.inputs[2],
                                 SampleInput::indices(reduced, input[1], winner_dtype(input[1])), statistics, statistics},
                      .attributes = sample.attributes});
  }
  return result;
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "scale_instance_norm_clamp_scale_max",
      .summary = "max(clamp(instance_norm(input * scale, eps), min, max) * post_scale, axis 1)",
      .inputs = {"input", "scale", "post_scale"},
      .outputs = {"output", "winner", "mean", "rstd"},
      .infer = [](const InferContext& call) { return chain_types(call, 0); },
      .gradient = gradient_rule,
      .decompose = decompose,
      .fuse = fuse,
      .cpu = {run_forward},
      .scratch = [](const InferContext& call) { return static_cast<std::size_t>(call.shape(0)[0] * call.shape(0)[1]) * 2 * sizeof(double); },
      .samples = samples,
  });
  registry.add<ChainAttributes>({
      .name = "scale_instance_norm_clamp_scale_max_backward",
      .summary = "the gradients of scale_instance_norm_clamp_scale_max",
      .inputs = {"gradient", "input", "scale", "post_scale", "winner", "mean", "rstd"},
      .outputs = {"input_gradient", "scale_gradient", "post_scale_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {run_backward},
      .scratch = [](const InferContext& call) { return static_cast<std::size_t>(call.shape(1)[0] * call.shape(1)[1]) * sizeof(InstanceSums); },
      .in_place = {{0, 1}},
      .samples = backward_samples,
  });
}
