#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"

#include <array>
#include <limits>

#include "frit/ops/chain/chain.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// Two passes over each sample, of which the second finds it in the cache.
template <class T>
struct Forward {
  Planes planes;
  const T *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  T *output, *argmax_input;
  double *means, *rstds;  // (N, C)

  void find_statistics(std::int64_t sample) const {
    parallel_for(planes.channels, 1, [&](std::int64_t c, std::int64_t) {
      const std::int64_t slice = sample * planes.channels + c;
      const ScaledInstance<T> instance{scale[c], post_scale[c], 0, 0};
      const T* const x = input + slice * planes.pixels;
      const SliceStatistics statistics = slice_statistics(
          planes.pixels, [&](std::int64_t i) { return instance.scaled(x[i]); }, eps);
      means[slice] = statistics.mean;
      rstds[slice] = statistics.rstd;
    });
  }

  /// The maxima of `count` pixels from `first` on, and the channels that they are of, if `argmax` is given.
  template <class Index>
  void find_maxima(std::int64_t sample, std::int64_t first, std::int64_t count, Index* argmax) const {
    std::array<T, most_block_pixels> best;
    std::array<std::int32_t, most_block_pixels> index;
    std::fill_n(best.begin(), count, -std::numeric_limits<T>::infinity());
    std::fill_n(index.begin(), count, 0);
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      const std::int64_t slice = sample * planes.channels + c;
      const T* const x = input + slice * planes.pixels + first;
      const ScaledInstance<T> instance{scale[c], post_scale[c], means[slice], rstds[slice]};
      const auto channel = static_cast<std::int32_t>(c);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const T value = clamp(instance.normalized(x[i])) * instance.post_scale, held = best[i];
        // The first of equal values wins, and the first NaN over everything.
        const bool wins = (value > held) | ((value != value) & (held == held));
        best[i] = wins ? value : held;
        index[i] = wins ? channel : index[i];
      }
    }
    const std::int64_t place = sample * planes.pixels + first;
    if (output != nullptr) std::copy_n(best.begin(), count, output + place);
    const auto for_each_argmax = [&](const auto& body) {
      for (std::int64_t i = 0; i < count; ++i) body(i, index[static_cast<std::size_t>(i)]);
    };
    if (argmax != nullptr) for_each_argmax([&](std::int64_t i, std::int32_t c) { argmax[place + i] = static_cast<Index>(c); });
    if (argmax_input == nullptr) return;
    for_each_argmax([&](std::int64_t i, std::int32_t c) {
      argmax_input[place + i] = input[(sample * planes.channels + c) * planes.pixels + first + i];
    });
  }

  template <class Index>
  void run(Index* argmax) const {
    const EvenBlocks blocks(planes.pixels, most_block_pixels, 16);
    parallel_for(planes.samples, sample_grain(planes.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) {
        find_statistics(sample);
        parallel_for(blocks.count, 1,
                     [&](std::int64_t block, std::int64_t) { find_maxima(sample, blocks.begin(block), blocks.length_of(block), argmax); });
      }
    });
  }
};

/// inputs (input, scale, post_scale), outputs (output, argmax, mean, rstd, argmax_input)
void run_forward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(call.inputs[0].shape());
  double* const workspace = reinterpret_cast<double*>(call.scratch.data());
  double* const means = call.outputs[2].defined() ? call.outputs[2].data<double>() : workspace;
  double* const rstds = call.outputs[3].defined() ? call.outputs[3].data<double>() : workspace + planes.samples * planes.channels;
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Forward<T> forward{.planes = planes,
                             .input = call.inputs[0].data<T>(),
                             .scale = call.inputs[1].data<T>(),
                             .post_scale = call.inputs[2].data<T>(),
                             .clamp = Clamp<T>(attributes.clamp()),
                             .eps = attributes.eps,
                             .output = data_or_null<T>(call.outputs[0]),
                             .argmax_input = data_or_null<T>(call.outputs[4]),
                             .means = means,
                             .rstds = rstds};
    dispatch_argmax(argmax_dtype(planes.channels), [&]<class Index>() { forward.run(data_or_null<Index>(call.outputs[1])); });
  });
}

Values gradient_rule(const GradientContext& c) {
  if (!c.gradients[0]) return Values(c.inputs.size());
  Values gradients =
      emit("scale_instance_norm_clamp_scale_max_backward",
           {c.gradients[0], c.inputs[0], c.inputs[1], c.inputs[2], c.outputs[1], c.outputs[2], c.outputs[3], c.outputs[4]}, c.attributes);
  gradients.resize(c.inputs.size());
  return gradients;
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<ChainAttributes>();
  const DType dtype = inputs[0].dtype();
  const Value y = clamp(instance_norm(inputs[0] * cast(inputs[1], dtype), {}, {}, a.eps), a.min, a.max) * cast(inputs[2], dtype);
  return {max(y, Dims{1}, a.keep_dims)};
}

/// The nodes are multiply, instance_norm, clamp, multiply, max.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType>) {
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
          sample({70, 16, 3, 5}, {.min = -1, .max = 1}, Fill::normal, false),
          sample({1, 16, 60, 44}, {.min = -1, .max = 1}, Fill::normal, false),
          sample({2, 16, 3, 5, 7}, {.min = -0.5, .max = 2}, Fill::zeros, false),
          sample({100, 2, 2051}, {.min = -1, .max = 1}, Fill::normal, false),
          sample({0, 4, 2, 3, 3}, {.min = -1, .max = 1})};
}

}  // namespace

std::vector<TensorType> scale_instance_norm_clamp_scale_max_types(const InferContext& call, std::size_t input) {
  const Shape& shape = call.shape(input);
  const DType dtype = call.inputs[input].dtype;
  call.require(shape.rank() >= 3, "expected an input (N, C, ...) of rank 3 or more, got ", shape);
  call.require(shape[1] > 0, "input ", shape, " has no channels");
  call.require(Planes(shape).pixels != 1, "expected more than 1 spatial element, got input ", shape);
  Shape per_channel = Dims::filled(shape.rank() - 1, 1);
  per_channel[0] = shape[1];
  require_parameter(call, input + 1, dtype, per_channel);
  require_parameter(call, input + 2, dtype, per_channel);
  const Shape reduced = reduced_shape(shape, {1}, call.as<ScaleInstanceNormClampScaleMaxAttributes>().keep_dims);
  const TensorType statistics{DType::f64, {shape[0], shape[1]}};
  return {{dtype, reduced}, {argmax_dtype(shape[1]), reduced}, statistics, statistics, {dtype, reduced}};
}

}  // namespace frit::ops

FRIT_OPERATORS(scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "scale_instance_norm_clamp_scale_max",
      .summary = "max(clamp(instance_norm(input * scale, eps), min, max) * post_scale, axis 1)",
      .inputs = {"input", "scale", "post_scale"},
      .outputs = {"output", "argmax", "mean", "rstd", "argmax_input"},
      .infer = [](const InferContext& call) { return scale_instance_norm_clamp_scale_max_types(call, 0); },
      .gradient = gradient_rule,
      .decompose = decompose,
      .fuse = fuse,
      .any_precision = {1, 2},
      .cpu = {.run = run_forward,
              .scratch =
                  [](const InferContext& call) {
                    return static_cast<std::size_t>(call.shape(0)[0] * call.shape(0)[1]) * 2 * sizeof(double);
                  }},
      .samples = samples,
  });
}
