#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"

#include <array>
#include <cstring>
#include <limits>

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/stages/channel_lanes.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// Channels and pixels that the second pass brings to the nearest cache at a time, where a row is a channel.
constexpr std::int64_t tile_channels = 16, tile_pixels = 256;

/// What a channel of a sample becomes: (x - reference) * slope + shift, clamped, times post_scale. The reference is the mean of the input,
/// rounded: the difference keeps the digits of data far from zero, and is 0 where all elements are equal.
template <class T>
struct InstanceMap {
  T reference, slope, shift, post_scale;

  T operator()(T x, const Clamp<T>& clamp) const { return clamp((x - reference) * slope + shift) * post_scale; }
};

/// Those of a sample's channels, each number's side by side.
template <class T>
struct InstanceMaps {
  static constexpr std::int64_t numbers = 4;
  T *reference, *slope, *shift, *post_scale;

  InstanceMaps(T* first, std::int64_t channels)
      : reference(first), slope(first + channels), shift(first + 2 * channels), post_scale(first + 3 * channels) {}
  InstanceMap<T> operator[](std::int64_t c) const { return {reference[c], slope[c], shift[c], post_scale[c]}; }
  /// `input_mean` is that of the input, `statistics` are of input * scale.
  void set(std::int64_t c, double input_mean, const SliceStatistics& statistics, T scale, T post) const {
    reference[c] = static_cast<T>(input_mean);
    slope[c] = static_cast<T>(static_cast<double>(scale) * statistics.rstd);
    shift[c] = static_cast<T>((static_cast<double>(reference[c]) * static_cast<double>(scale) - statistics.mean) * statistics.rstd);
    post_scale[c] = post;
  }
  /// Whether no finite number becomes NaN; where some are not finite, neither is the reference.
  bool keeps_finite(std::int64_t c) const {
    return slope[c] != 0 && post_scale[c] != 0 && std::isfinite(reference[c] + slope[c] + shift[c] + post_scale[c]);
  }
};

/// Two passes over each sample, of which the second finds it in the cache.
template <class T>
struct Forward {
  Planes planes;
  EvenBlocks blocks;                    // of pixels, whose sums are made alone
  const T *input, *scale, *post_scale;  // the input with its channels last
  Clamp<T> clamp;
  double eps;
  T *output, *argmax_input;
  double *means, *rstds;  // (N, C)
  DifferenceSums* sums;   // (N, blocks, C)
  T* maps;                // (N, 4, C)

  const T* pixel(std::int64_t sample, std::int64_t p) const { return input + (sample * planes.pixels + p) * planes.channels; }
  InstanceMaps<T> maps_of(std::int64_t sample) const {
    return {maps + sample * InstanceMaps<T>::numbers * planes.channels, planes.channels};
  }

  void sum_block(std::int64_t sample, std::int64_t block) const {
    const T* const pivots = pixel(sample, 0);
    sum_differences(
        pixel(sample, blocks.begin(block)), blocks.length_of(block), planes.channels, [&](std::int64_t c) { return pivots[c]; },
        sums + (sample * blocks.count + block) * planes.channels);
  }

  /// The statistics of the input become those of input * scale.
  void find_statistics(std::int64_t sample) const {
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      DifferenceSums total;
      for (std::int64_t block = 0; block < blocks.count; ++block) total += sums[(sample * blocks.count + block) * planes.channels + c];
      const Moments moments = total.moments(planes.pixels == 0 ? 0 : static_cast<double>(pixel(sample, 0)[c]), planes.pixels);
      const double factor = std::isfinite(scale[c]) ? static_cast<double>(scale[c]) : std::numeric_limits<double>::quiet_NaN();
      const SliceStatistics statistics = statistics_of({moments.count, moments.mean * factor, moments.variance * factor * factor}, eps);
      means[sample * planes.channels + c] = statistics.mean;
      rstds[sample * planes.channels + c] = statistics.rstd;
      maps_of(sample).set(c, moments.mean, statistics, scale[c], post_scale[c]);
    }
  }

  /// The largest values of some pixels so far, and their channels. The first of equal values wins, and the first NaN over everything.
  struct Maxima {
    std::array<T, tile_pixels> value;
    std::array<std::int32_t, tile_pixels> channel;

    explicit Maxima(std::int64_t count) {
      std::fill_n(value.begin(), count, -std::numeric_limits<T>::infinity());
      std::fill_n(channel.begin(), count, 0);
    }
    void take(const T* x, std::size_t count, const InstanceMap<T> map, const Clamp<T> bounds, std::int32_t c) {
      for (std::size_t i = 0; i < count; ++i) {
        const T offered = map(x[i], bounds), held = value[i];
        const bool wins = (offered > held) | ((offered != offered) & (held == held));
        value[i] = wins ? offered : held;
        channel[i] = wins ? c : channel[i];
      }
    }
  };

  /// The maxima of `count` pixels from `first` on, and the channels that they are of, if `argmax` is given.
  template <class Index>
  void find_maxima(std::int64_t sample, std::int64_t first, std::int64_t count, Index* argmax) const {
    Maxima maxima(count);
    alignas(64) std::array<T, tile_channels * tile_pixels> tile;
    const T* const x = pixel(sample, first);
    for (std::int64_t begin = 0; begin < planes.channels; begin += tile_channels) {
      const std::int64_t channels = std::min(tile_channels, planes.channels - begin);
      transpose(x + begin, planes.channels, count, channels, tile.data(), tile_pixels);
      for (std::int64_t j = 0; j < channels; ++j) {
        const std::int64_t c = begin + j;
        maxima.take(tile.data() + j * tile_pixels, static_cast<std::size_t>(count), maps_of(sample)[c], clamp,
                    static_cast<std::int32_t>(c));
      }
    }
    const std::int64_t place = sample * planes.pixels + first;
    if (output != nullptr) std::copy_n(maxima.value.begin(), count, output + place);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t c = maxima.channel[static_cast<std::size_t>(i)];
      if (argmax != nullptr) argmax[place + i] = static_cast<Index>(c);
      if (argmax_input != nullptr) argmax_input[place + i] = x[i * planes.channels + c];
    }
  }

  /// Whether the maxima alone are asked for, of whole vectors of channels, and none of them is NaN.
  bool is_plain(std::int64_t sample) const {
    bool plain = argmax_input == nullptr && planes.channels % simd::lanes<T> == 0 && clamp.low == clamp.low && clamp.high == clamp.high;
    for (std::int64_t c = 0; plain && c < planes.channels; ++c) plain = maps_of(sample).keeps_finite(c);
    return plain;
  }

  /// The maxima of as many pixels as a vector has lanes, a vector of channels at a time; of fewer, the first's after them.
  simd::Vector<T> plain_maxima(const InstanceMaps<T>& of_sample, const T* x, std::int64_t pixels) const {
    using V = simd::Vector<T>;
    constexpr int n = simd::lanes<T>;
    const V low = simd::broadcast(clamp.low), high = simd::broadcast(clamp.high);
    V rows[n];
    std::fill_n(rows, n, simd::broadcast(-std::numeric_limits<T>::infinity()));
    for (std::int64_t c = 0; c < planes.channels; c += n) {
      const V reference = simd::load(of_sample.reference + c), slope = simd::load(of_sample.slope + c);
      const V shift = simd::load(of_sample.shift + c), post = simd::load(of_sample.post_scale + c);
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        const V value = simd::load(x + (i < pixels ? i * planes.channels : 0) + c);
        const V offered = simd::clamp<T>((value - reference) * slope + shift, low, high) * post;
        rows[i] = offered > rows[i] ? offered : rows[i];
      }
    }
    return simd::maxima_of_rows(rows);
  }

  void find_plain_maxima(std::int64_t sample, std::int64_t first, std::int64_t count) const {
    T* const to = output + sample * planes.pixels + first;
    for (std::int64_t i = 0; i < count; i += simd::lanes<T>) {
      const std::int64_t pixels = std::min<std::int64_t>(simd::lanes<T>, count - i);
      const simd::Vector<T> maxima = plain_maxima(maps_of(sample), pixel(sample, first + i), pixels);
      std::memcpy(to + i, &maxima, static_cast<std::size_t>(pixels) * sizeof(T));
    }
  }

  template <class Index>
  void run(Index* argmax) const {
    const EvenBlocks tiles(planes.pixels, tile_pixels, 16);
    parallel_for(planes.samples, sample_grain(planes.samples), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t sample = begin; sample < end; ++sample) {
        parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) { sum_block(sample, block); });
        find_statistics(sample);
        const bool plain = argmax == nullptr && output != nullptr && is_plain(sample);
        parallel_for(tiles.count, 4, [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t tile = from; tile < to; ++tile) {
            const std::int64_t first = tiles.begin(tile), count = tiles.length_of(tile);
            plain ? find_plain_maxima(sample, first, count) : find_maxima(sample, first, count, argmax);
          }
        });
      }
    });
  }
};

/// The scratch memory.
struct Scratch {
  EvenBlocks blocks;
  ScratchParts all;
  std::size_t means, rstds, sums, maps, copies;

  explicit Scratch(const Planes& planes) : blocks(channel_sum_blocks(planes.channels, planes.pixels)) {
    means = all.add(planes.samples * planes.channels, sizeof(double));
    rstds = all.add(planes.samples * planes.channels, sizeof(double));
    sums = all.add(planes.samples * blocks.count * planes.channels, sizeof(DifferenceSums));
    maps = all.add(planes.samples * planes.channels * InstanceMaps<double>::numbers, sizeof(double));
    copies = all.bytes();
  }
};

std::size_t scratch_bytes(const InferContext& call) {
  return Scratch(Planes(call.shape(0))).copies + ChannelsLastCopies::bytes(call.inputs[0], call.input_layout(0));
}

/// inputs (input, scale, post_scale), outputs (output, argmax, mean, rstd, argmax_input)
void run_forward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(call.inputs[0].shape());
  const Scratch scratch(planes);
  ChannelsLastCopies copies(call.scratch.data() + scratch.copies);
  const auto statistics = [&](std::size_t output, std::size_t part) {
    return call.outputs[output].defined() ? call.outputs[output].data<double>() : scratch_part<double>(call, part);
  };
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Forward<T> forward{.planes = planes,
                             .blocks = scratch.blocks,
                             .input = copies.read<T>(call.inputs[0]),
                             .scale = call.inputs[1].data<T>(),
                             .post_scale = call.inputs[2].data<T>(),
                             .clamp = Clamp<T>(attributes.clamp()),
                             .eps = attributes.eps,
                             .output = data_or_null<T>(call.outputs[0]),
                             .argmax_input = data_or_null<T>(call.outputs[4]),
                             .means = statistics(2, scratch.means),
                             .rstds = statistics(3, scratch.rstds),
                             .sums = scratch_part<DifferenceSums>(call, scratch.sums),
                             .maps = scratch_part<T>(call, scratch.maps)};
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
      .samples_in = samples_of_input_0,
      .any_precision = {1, 2},
      .cpu = {.run = run_forward, .scratch = scratch_bytes, .any_layout_inputs = {0}, .prefers_channels_last = true},
      .samples = samples,
  });
}
