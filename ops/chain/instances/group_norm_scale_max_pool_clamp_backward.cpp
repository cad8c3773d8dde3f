#include <array>

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/registry.h"

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

/// First the sums over each group, for which the small tensors are enough; then one pass over it that writes the input's gradient.
template <class T, class Index>
struct Backward {
  Geometry geometry;
  const T *gradient, *input, *weight, *bias, *scale;
  Clamp<T> clamp;
  const Index* argmax;
  const double *means, *rstds;
  const T* argmax_input;
  T *input_gradient, *input_gradient_sums;  // whole; (C)
  WindowPlaces places;
  ChannelSums* sums;  // (N, C)

  /// The gradient of the norm's result at a plane's maxima goes to `entering`, an element a window, and where they are to `argmax_places`.
  ChannelSums sum_over_argmax(const ScaledGroupChannel<T>& channel, std::int64_t plane, T* entering, std::int32_t* argmax_places) const {
    constexpr std::int64_t most_windows = most_block_pixels;
    std::array<T, most_windows> normalized, passed;
    std::array<double, most_windows> centered;
    LaneSums<3> lanes;
    for (std::int64_t first = 0; first < geometry.windows(); first += most_windows) {
      const auto count = static_cast<std::size_t>(std::min(most_windows, geometry.windows() - first));
      const Index* const w = argmax + plane * geometry.windows() + first;
      const T* const g = gradient + plane * geometry.windows() + first;
      const T* const x = argmax_input + plane * geometry.windows() + first;
      for (std::size_t i = 0; i < count; ++i) {
        argmax_places[i] = places.begins[first + static_cast<std::int64_t>(i)] + places.offsets[w[i]];
        normalized[i] = channel.normalized(x[i]);
        centered[i] = channel.centered(x[i]);
      }
      for (std::size_t i = 0; i < count; ++i) {
        passed[i] = clamp.gradient(g[i], normalized[i] * channel.scale);
        entering[i] = passed[i] * channel.scale;
      }
      lanes.add(static_cast<std::int64_t>(count), [&](std::int64_t k) {
        const auto i = static_cast<std::size_t>(k);
        const auto norm_gradient = static_cast<double>(entering[i]);
        return std::array<double, 3>{norm_gradient, norm_gradient * centered[i],
                                     static_cast<double>(passed[i]) * static_cast<double>(normalized[i])};
      });
      entering += count;
      argmax_places += count;
    }
    // Elsewhere the gradient is 0, which matters where it meets an infinity or NaN.
    const double zero = 0 * static_cast<double>(channel.scale);
    const auto [gradient_sum, product_sum, scale_sum] = lanes.totals();
    return {{gradient_sum + zero, product_sum + zero}, scale_sum + 0 * (channel.slope + channel.shift)};
  }

  /// The gradient that every element of a channel gets from being 0 in front of its factors: NaN if one of them is not finite.
  static double elsewhere(const ScaledGroupChannel<T>& channel) { return 0 * channel.slope * static_cast<double>(channel.scale); }

  /// The sum over the input's gradient in a plane, whose maxima get `gradient_sum` times a slope.
  double input_gradient_sum(const ScaledGroupChannel<T>& channel, const NormInputGradient& rule, std::int64_t plane,
                            double gradient_sum) const {
    LaneSums<1> differences;
    differences.add(geometry.pixels(),
                    [&, x = input + plane * geometry.pixels()](std::int64_t i) { return std::array<double, 1>{channel.centered(x[i])}; });
    const double count = static_cast<double>(geometry.pixels());
    return channel.slope * gradient_sum + rule.slope * differences.totals()[0] + count * rule(elsewhere(channel), rule.mean);
  }

  void write_input_gradient(const ScaledGroupChannel<T>& channel, const NormInputGradient& rule, std::int64_t plane, const T* entering,
                            const std::int32_t* argmax_places) const {
    const T* const x = input + plane * geometry.pixels();
    T* const dx = input_gradient + plane * geometry.pixels();
    map_run(dx, geometry.pixels(), [&, zero = elsewhere(channel)](std::int64_t i) { return rule(zero, static_cast<double>(x[i])); });
    const auto pixels = static_cast<std::uint32_t>(geometry.pixels());
    for (std::int64_t i = 0; i < geometry.windows(); ++i) {
      const auto place = static_cast<std::uint32_t>(argmax_places[i]);
      if (place < pixels) dx[place] += static_cast<T>(static_cast<double>(entering[i]) * channel.slope);  // none in the padding
    }
  }

  void run(const WorkSplit& split, std::span<std::byte> workspace) const {
    places.fill(geometry);
    split.run(workspace, [&](std::int64_t slice, std::byte* memory) {
      T* const entering = reinterpret_cast<T*>(memory);
      auto* const argmax_places = reinterpret_cast<std::int32_t*>(entering + geometry.group_windows());
      const SliceStatistics statistics{means[slice], rstds[slice]};
      const auto for_each_channel = [&](const auto& body) {
        for (std::int64_t i = 0; i < geometry.group_channels(); ++i) {
          const std::int64_t plane = slice * geometry.group_channels() + i, c = plane % geometry.channels;
          const ScaledGroupChannel<T> channel(statistics.mean, statistics.rstd, weight[c], bias[c], scale[c]);
          body(c, channel, plane, entering + i * geometry.windows(), argmax_places + i * geometry.windows());
        }
      };
      NormGradientSums total;
      for_each_channel(
          [&](std::int64_t c, const ScaledGroupChannel<T>& channel, std::int64_t plane, T* plane_entering, std::int32_t* plane_places) {
            sums[plane] = sum_over_argmax(channel, plane, plane_entering, plane_places);
            const auto w = static_cast<double>(weight[c]);
            total += {w * sums[plane].norm.gradient, w * sums[plane].norm.product};
            sums[plane].norm.product *= statistics.rstd;
          });
      const NormInputGradient rule(statistics, total, geometry.group_pixels());
      if (input_gradient_sums != nullptr) {
        for_each_channel([&](std::int64_t, const ScaledGroupChannel<T>& channel, std::int64_t plane, T*, std::int32_t*) {
          sums[plane].input_gradient = input_gradient_sum(channel, rule, plane, sums[plane].norm.gradient);
        });
      }
      if (input_gradient == nullptr) return;
      for_each_channel([&](std::int64_t, const ScaledGroupChannel<T>& channel, std::int64_t plane, T* plane_entering,
                           std::int32_t* plane_places) { write_input_gradient(channel, rule, plane, plane_entering, plane_places); });
    });
  }

  /// Each sum over the batch, in order.
  void write_channel_gradients(T* weight_gradient, T* bias_gradient, T* scale_gradient) const {
    for (std::int64_t c = 0; c < geometry.channels; ++c) {
      ChannelSums total;
      for (std::int64_t plane = c; plane < geometry.samples * geometry.channels; plane += geometry.channels) {
        total.norm += sums[plane].norm;
        total.scale += sums[plane].scale;
        total.input_gradient += sums[plane].input_gradient;
      }
      if (weight_gradient != nullptr) weight_gradient[c] = static_cast<T>(total.norm.product);
      if (bias_gradient != nullptr) bias_gradient[c] = static_cast<T>(total.norm.gradient);
      if (scale_gradient != nullptr) scale_gradient[c] = static_cast<T>(total.scale);
      if (input_gradient_sums != nullptr) input_gradient_sums[c] = static_cast<T>(total.input_gradient);
    }
  }
};

/// The parts of the backward kernel's scratch memory, in bytes: begins, offsets, sums, and the workspace of the tasks.
struct BackwardScratch {
  std::size_t begins, offsets, sums;
  WorkSplit split;

  BackwardScratch(const Geometry& geometry, DType dtype)
      : begins(aligned(geometry.windows(), sizeof(std::int32_t))),
        offsets(aligned(geometry.kernel_elements(), sizeof(std::int32_t))),
        sums(aligned(geometry.samples * geometry.channels, sizeof(ChannelSums))),
        split(geometry.slices(), geometry.group_pixels() * 8, aligned(geometry.group_windows(), size_of(dtype) + sizeof(std::int32_t))) {}
  std::size_t total() const { return begins + offsets + sums + split.scratch(); }

 private:
  static std::size_t aligned(std::int64_t count, std::size_t size) { return (static_cast<std::size_t>(count) * size + 63) / 64 * 64; }
};

/// inputs (gradient, input, weight, bias, scale, argmax, mean, rstd, argmax_input)
/// outputs (input_gradient, weight_gradient, bias_gradient, scale_gradient, input_gradient_sum)
void run(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Geometry geometry(call.inputs[1].shape(), attributes);
  const BackwardScratch scratch(geometry, call.inputs[1].dtype());
  std::byte* const memory = call.scratch.data();
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    dispatch_argmax(call.inputs[5].dtype(), [&]<class Index>() {
      const Backward<T, Index> backward{
          .geometry = geometry,
          .gradient = call.inputs[0].data<T>(),
          .input = call.inputs[1].data<T>(),
          .weight = call.inputs[2].data<T>(),
          .bias = call.inputs[3].data<T>(),
          .scale = call.inputs[4].data<T>(),
          .clamp = Clamp<T>(attributes.clamp()),
          .argmax = call.inputs[5].data<Index>(),
          .means = call.inputs[6].data<double>(),
          .rstds = call.inputs[7].data<double>(),
          .argmax_input = call.inputs[8].data<T>(),
          .input_gradient = data_or_null<T>(call.outputs[0]),
          .input_gradient_sums = data_or_null<T>(call.outputs[4]),
          .places = {reinterpret_cast<std::int32_t*>(memory), reinterpret_cast<std::int32_t*>(memory + scratch.begins)},
          .sums = reinterpret_cast<ChannelSums*>(memory + scratch.begins + scratch.offsets)};
      backward.run(scratch.split, call.scratch.subspan(scratch.begins + scratch.offsets + scratch.sums));
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
      .cpu = {.run = run,
              .scratch =
                  [](const InferContext& call) {
                    return BackwardScratch(Geometry(call.shape(1), call.as<ChainAttributes>()), call.inputs[1].dtype).total();
                  }},
      .in_place = {{0, 1}},
      .channel_sums = {{4, 0}},
      .index_inputs = {{5, window_elements}},
      .samples = samples,
  });
}
