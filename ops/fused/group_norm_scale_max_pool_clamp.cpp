// clamp(max_pool2d(group_norm(input) * scale)): what follows a convolution, in two walks over each group, the second one in cache. The gradient that
// enters the norm is that of one element a window, so its sums are taken over the output; what the pool cut off still counts in the norm.

#include "frit/ops/fused/group_norm_scale_max_pool_clamp.h"

#include <array>
#include <limits>

#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/fused/chain.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/pool/pool_geometry.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;

/// The sizes of a call. Image axis 0 of `pool` is unused.
struct Geometry {
  std::int64_t samples, channels, groups;
  PoolGeometry pool;

  Geometry(const Shape& input, const ChainAttributes& attributes)
      : samples(input[0]), channels(input[1]), groups(attributes.num_groups), pool(pool_geometry(input, attributes.pool(), 2)) {}

  std::int64_t slices() const { return samples * groups; }
  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t pixels() const { return pool.image[1] * pool.image[2]; }
  std::int64_t group_pixels() const { return group_channels() * pixels(); }
  std::int64_t windows() const { return pool.output[1] * pool.output[2]; }
  std::int64_t group_windows() const { return group_channels() * windows(); }
  std::int64_t kernel_elements() const { return pool.kernel[1] * pool.kernel[2]; }
  /// Image columns from the first to the last that a window touches.
  std::int64_t window_columns() const { return (pool.kernel[2] - 1) * pool.dilation[2] + 1; }
};

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

template <class T>
struct Parameters {
  const T *weight, *bias, *scale;

  ScaledGroupChannel<T> channel(std::int64_t c, const SliceStatistics& statistics) const {
    return {statistics.mean, statistics.rstd * static_cast<double>(weight[c]), static_cast<double>(bias[c]), scale[c]};
  }
};

/// Loops over places are rounded up to whole vectors where memory allows: the remaining steps one by one would cost a mispredicted branch each.
constexpr std::int64_t vector = 16;
std::int64_t whole_vectors(std::int64_t count) { return (count + vector - 1) / vector * vector; }

/// Maxima side by side, and which elements of their windows they are: kernel row * kernel width + kernel column.
template <class T>
struct Maxima {
  static constexpr std::int64_t capacity = 2048;
  static constexpr std::int32_t outside = std::int32_t{1} << 30;  ///< the number of what lies in the padding: behind all others

  std::array<T, capacity + vector> value;
  std::array<std::int32_t, capacity + vector> number;

  void clear(std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      value[i] = -std::numeric_limits<T>::infinity();
      number[i] = outside;
    }
  }

  /// Places first, first + 1, ...: x[0], x[1], ...
  void set_row(const ScaledGroupChannel<T> channel, const T* x, std::int64_t first, std::int64_t count, std::int32_t row_number) {
    T* const held = value.data() + first;
    for (std::int64_t i = 0; i < count; ++i) held[i] = channel.result(x[i]);
    std::fill_n(number.data() + first, count, row_number);
  }

  /// The same places: the larger of what is there and of x[0], x[1], ..., which come later in their windows.
  void take_row(const ScaledGroupChannel<T> channel, const T* x, std::int64_t first, std::int64_t count, std::int32_t row_number) {
    T* const held = value.data() + first;
    std::int32_t* const held_number = number.data() + first;
    for (std::int64_t i = 0; i < count; ++i) {
      const T offered = channel.result(x[i]);
      const bool wins = replaces_maximum(offered, held[i]);
      held[i] = wins ? offered : held[i];
      held_number[i] = wins ? row_number : held_number[i];
    }
  }

  /// Places 0, 1, ...: the largest of `kernel` columns, which are `dilation` apart and begin at 0, stride, 2 * stride, ...
  template <int known_stride>
  void reduce_columns(const Maxima& columns, std::int64_t stride, std::int64_t dilation, std::int64_t kernel, std::int64_t count) {
    if constexpr (known_stride != 0) stride = known_stride;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto to = static_cast<std::size_t>(i), from = static_cast<std::size_t>(i * stride);
      value[to] = columns.value[from];
      number[to] = columns.number[from];
    }
    for (std::int64_t k = 1; k < kernel; ++k) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto to = static_cast<std::size_t>(i), from = static_cast<std::size_t>(i * stride + k * dilation);
        const T offered = columns.value[from], held = value[to];
        const std::int32_t offered_number = columns.number[from] + static_cast<std::int32_t>(k), held_number = number[to];
        const bool earlier = offered_number < held_number, offered_nan = offered != offered, held_nan = held != held;
        const bool wins = (offered > held) | ((offered == held) & earlier) | (offered_nan & (!held_nan | !earlier));
        value[to] = wins ? offered : held;
        number[to] = wins ? offered_number : held_number;
      }
    }
  }
};

template <class T>
struct Forward {
  Geometry geometry;
  const T* input;
  Parameters<T> parameters;
  Clamp<T> clamp;
  double eps;
  T* output;
  double *means, *rstds;  // (N, G)

  /// The maxima over the windows' rows, for the image columns that windows [begin, ...) of one row of windows touch, go to places [first, end).
  void reduce_rows(const ScaledGroupChannel<T>& channel, std::int64_t plane, std::int64_t row, std::int64_t begin, std::int64_t first,
                   std::int64_t end, Maxima<T>& columns) const {
    const PoolGeometry& pool = geometry.pool;
    const std::int64_t left = pool.window_begin(2, begin);
    const std::int64_t low = std::max<std::int64_t>(left, 0), high = std::min(left + end - first, pool.image[2]);
    const KernelRange heights = kernel_range(pool, 1, row, row);
    for (std::int64_t kh = heights.begin; kh < heights.end; ++kh) {
      const std::int64_t h = pool.window_begin(1, row) + kh * pool.dilation[1];
      const std::int64_t offset = plane * geometry.pixels() + h * pool.image[2] + low;
      const std::int64_t count = std::min(whole_vectors(high - low), geometry.samples * geometry.channels * geometry.pixels() - offset);
      const auto number = static_cast<std::int32_t>(kh * pool.kernel[2]);
      if (kh == heights.begin) columns.set_row(channel, input + offset, first + low - left, count, number);
      else columns.take_row(channel, input + offset, first + low - left, count, number);
    }
    columns.clear(first, first + low - left);
    columns.clear(first + high - left, end);
  }

  /// Several rows of windows at a time, so that the loops are long: first down the image's columns, then across them.
  template <int known_stride, class Winner>
  void pool_plane(const ScaledGroupChannel<T>& channel, std::int64_t plane, Winner* winners) const {
    const PoolGeometry& pool = geometry.pool;
    const std::int64_t stride = pool.stride[2], window = geometry.window_columns();
    const std::int64_t most_windows = std::min(pool.output[2], (Maxima<T>::capacity - window) / stride + 1);
    const std::int64_t row_columns = (most_windows - 1) * stride + window;
    const std::int64_t pitch = (row_columns + stride - 1) / stride;  // windows from row to row, some of no meaning
    const std::int64_t most_rows = most_windows < pool.output[2] ? 1 : std::max<std::int64_t>(1, Maxima<T>::capacity / (pitch * stride));
    Maxima<T> columns, maxima;
    for (std::int64_t row = 0; row < pool.output[1]; row += most_rows) {
      const std::int64_t rows = std::min(most_rows, pool.output[1] - row);
      for (std::int64_t begin = 0; begin < pool.output[2]; begin += most_windows) {
        const std::int64_t count = std::min(most_windows, pool.output[2] - begin);
        const std::int64_t windows = std::min(whole_vectors((rows - 1) * pitch + count), (Maxima<T>::capacity - window) / stride + 1);
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t end = r + 1 < rows ? (r + 1) * pitch * stride : (windows - 1) * stride + window;
          reduce_rows(channel, plane, row + r, begin, r * pitch * stride, end, columns);
        }
        maxima.template reduce_columns<known_stride>(columns, stride, pool.dilation[2], pool.kernel[2], windows);
        std::transform(maxima.value.begin(), maxima.value.begin() + windows, maxima.value.begin(), clamp);
        const std::int64_t place = plane * geometry.windows() + row * pool.output[2] + begin;
        if (pitch == count) {
          write(maxima, 0, rows * count, place, winners);
        } else {
          for (std::int64_t r = 0; r < rows; ++r) write(maxima, r * pitch, count, place + r * pool.output[2], winners);
        }
      }
    }
  }

  template <class Winner>
  void write(const Maxima<T>& maxima, std::int64_t first, std::int64_t count, std::int64_t place, Winner* winners) const {
    if (output != nullptr) std::copy_n(maxima.value.data() + first, count, output + place);
    if (winners == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) winners[place + i] = static_cast<Winner>(maxima.number[static_cast<std::size_t>(first + i)]);
  }

  template <int known_stride, class Winner>
  void run(Winner* winners) const {
    const WorkSplit split(geometry.slices(), geometry.group_pixels() * 8, 0);
    split.run({}, [&](std::int64_t slice, std::byte*) {
      const auto x = [group = input + slice * geometry.group_pixels()](std::int64_t i) { return group[i]; };
      const SliceStatistics statistics = slice_statistics(geometry.group_pixels(), x, eps);
      if (means != nullptr) means[slice] = statistics.mean;
      if (rstds != nullptr) rstds[slice] = statistics.rstd;
      for (std::int64_t i = 0; i < geometry.group_channels(); ++i) {
        const std::int64_t plane = slice * geometry.group_channels() + i;
        pool_plane<known_stride>(parameters.channel(plane % geometry.channels, statistics), plane, winners);
      }
    });
  }
};

/// inputs (input, weight, bias, scale), outputs (output, winner, mean, rstd)
void run_forward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Geometry geometry(call.inputs[0].shape(), attributes);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Forward<T> forward{geometry,
                             call.inputs[0].data<T>(),
                             {call.inputs[1].data<T>(), call.inputs[2].data<T>(), call.inputs[3].data<T>()},
                             Clamp<T>(attributes.clamp()),
                             attributes.eps,
                             data_or_null<T>(call.outputs[0]),
                             data_or_null<double>(call.outputs[2]),
                             data_or_null<double>(call.outputs[3])};
    dispatch_winner(winner_dtype(geometry.kernel_elements()), [&]<class Winner>() {
      Winner* const winners = data_or_null<Winner>(call.outputs[1]);
      switch (geometry.pool.stride[2]) {
        case 2: return forward.template run<2>(winners);
        case 3: return forward.template run<3>(winners);
        case 4: return forward.template run<4>(winners);
        default: return forward.template run<0>(winners);
      }
    });
  });
}

/// What one channel of one sample adds to the gradients.
struct ChannelSums {
  NormGradientSums norm;  ///< of the gradient of the norm's result
  double scale = 0;
};

/// Where the elements of windows lie in a plane: begins[window] + offsets[element of the kernel].
struct WindowPlaces {
  std::int32_t *begins, *offsets;

  void fill(const Geometry& geometry) const {
    const PoolGeometry& pool = geometry.pool;
    const auto place = [&](std::int64_t h, std::int64_t w) { return static_cast<std::int32_t>(h * pool.image[2] + w); };
    for (std::int64_t h = 0; h < pool.output[1]; ++h) {
      for (std::int64_t w = 0; w < pool.output[2]; ++w) begins[h * pool.output[2] + w] = place(pool.window_begin(1, h), pool.window_begin(2, w));
    }
    for (std::int64_t h = 0; h < pool.kernel[1]; ++h) {
      for (std::int64_t w = 0; w < pool.kernel[2]; ++w) offsets[h * pool.kernel[2] + w] = place(h * pool.dilation[1], w * pool.dilation[2]);
    }
  }
};

template <class T, class Winner>
struct Backward {
  Geometry geometry;
  const T *gradient, *input;
  Parameters<T> parameters;
  Clamp<T> clamp;
  const Winner* winners;
  const double *means, *rstds;
  T* input_gradient;
  WindowPlaces places;
  ChannelSums* sums;  // (N, C)

  /// The gradient of the norm's result at the winners of a plane goes to `entering`, an element a window, and their places to `winner_places`.
  ChannelSums sum_over_winners(const ScaledGroupChannel<T>& channel, std::int64_t plane, T* entering, std::int32_t* winner_places) const {
    constexpr std::int64_t most_windows = 1024;
    const T* const x = input + plane * geometry.pixels();
    std::array<T, most_windows> normalized, passed;
    std::array<double, most_windows> centered;
    LaneSums<3> lanes;
    for (std::int64_t first = 0; first < geometry.windows(); first += most_windows) {
      const auto count = static_cast<std::size_t>(std::min(most_windows, geometry.windows() - first));
      const Winner* const w = winners + plane * geometry.windows() + first;
      const T* const g = gradient + plane * geometry.windows() + first;
      for (std::size_t i = 0; i < count; ++i) {
        winner_places[i] = places.begins[first + static_cast<std::int64_t>(i)] + places.offsets[w[i]];
        const T element = x[winner_places[i]];
        normalized[i] = channel.normalized(element);
        centered[i] = channel.centered(element);
      }
      for (std::size_t i = 0; i < count; ++i) {
        passed[i] = clamp.gradient(g[i], normalized[i] * channel.scale);
        entering[i] = passed[i] * channel.scale;
      }
      lanes.add(static_cast<std::int64_t>(count), [&](std::int64_t k) {
        const auto i = static_cast<std::size_t>(k);
        const auto norm_gradient = static_cast<double>(entering[i]);
        return std::array<double, 3>{norm_gradient, norm_gradient * centered[i], static_cast<double>(passed[i]) * static_cast<double>(normalized[i])};
      });
      entering += count;
      winner_places += count;
    }
    // Elsewhere the gradient is 0, which matters where it meets an infinity or NaN.
    const double zero = 0 * static_cast<double>(channel.scale);
    const auto [gradient_sum, product_sum, scale_sum] = lanes.totals();
    return {{gradient_sum + zero, product_sum + zero}, scale_sum + 0 * (channel.slope + channel.shift)};
  }

  void write_input_gradient(const ScaledGroupChannel<T>& channel, const NormInputGradient& rule, std::int64_t plane, const T* entering,
                            const std::int32_t* winner_places) const {
    const T* const x = input + plane * geometry.pixels();
    T* const dx = input_gradient + plane * geometry.pixels();
    const double elsewhere = 0 * channel.slope * static_cast<double>(channel.scale);  // NaN if one of them is not finite
    map_run(dx, geometry.pixels(), [&](std::int64_t i) { return rule(elsewhere, static_cast<double>(x[i])); });
    for (std::int64_t i = 0; i < geometry.windows(); ++i) dx[winner_places[i]] += static_cast<T>(static_cast<double>(entering[i]) * channel.slope);
  }

  void run(const WorkSplit& split, std::span<std::byte> workspace) const {
    places.fill(geometry);
    split.run(workspace, [&](std::int64_t slice, std::byte* memory) {
      T* const entering = reinterpret_cast<T*>(memory);
      auto* const winner_places = reinterpret_cast<std::int32_t*>(entering + geometry.group_windows());
      const SliceStatistics statistics{means[slice], rstds[slice]};
      const auto for_each_channel = [&](const auto& body) {
        for (std::int64_t i = 0; i < geometry.group_channels(); ++i) {
          const std::int64_t plane = slice * geometry.group_channels() + i, c = plane % geometry.channels;
          body(c, parameters.channel(c, statistics), plane, entering + i * geometry.windows(), winner_places + i * geometry.windows());
        }
      };
      NormGradientSums total;
      for_each_channel([&](std::int64_t c, const ScaledGroupChannel<T>& channel, std::int64_t plane, T* plane_entering, std::int32_t* plane_places) {
        sums[plane] = sum_over_winners(channel, plane, plane_entering, plane_places);
        const auto weight = static_cast<double>(parameters.weight[c]);
        total += {weight * sums[plane].norm.gradient, weight * sums[plane].norm.product};
        sums[plane].norm.product *= statistics.rstd;
      });
      if (input_gradient == nullptr) return;
      const NormInputGradient rule(statistics, total, geometry.group_pixels());
      for_each_channel([&](std::int64_t, const ScaledGroupChannel<T>& channel, std::int64_t plane, T* plane_entering, std::int32_t* plane_places) {
        write_input_gradient(channel, rule, plane, plane_entering, plane_places);
      });
    });
  }

  /// Each sum over the batch, in order.
  void write_parameter_gradients(T* weight_gradient, T* bias_gradient, T* scale_gradient) const {
    for (std::int64_t c = 0; c < geometry.channels; ++c) {
      ChannelSums total;
      for (std::int64_t plane = c; plane < geometry.samples * geometry.channels; plane += geometry.channels) {
        total.norm += sums[plane].norm;
        total.scale += sums[plane].scale;
      }
      if (weight_gradient != nullptr) weight_gradient[c] = static_cast<T>(total.norm.product);
      if (bias_gradient != nullptr) bias_gradient[c] = static_cast<T>(total.norm.gradient);
      if (scale_gradient != nullptr) scale_gradient[c] = static_cast<T>(total.scale);
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

/// inputs (gradient, input, weight, bias, scale, winner, mean, rstd), outputs (input_gradient, weight_gradient, bias_gradient, scale_gradient)
void run_backward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Geometry geometry(call.inputs[1].shape(), attributes);
  const BackwardScratch scratch(geometry, call.inputs[1].dtype());
  std::byte* const begins = call.scratch.data();
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    dispatch_winner(call.inputs[5].dtype(), [&]<class Winner>() {
      const Backward<T, Winner> backward{geometry,
                                         call.inputs[0].data<T>(),
                                         call.inputs[1].data<T>(),
                                         {call.inputs[2].data<T>(), call.inputs[3].data<T>(), call.inputs[4].data<T>()},
                                         Clamp<T>(attributes.clamp()),
                                         call.inputs[5].data<Winner>(),
                                         call.inputs[6].data<double>(),
                                         call.inputs[7].data<double>(),
                                         data_or_null<T>(call.outputs[0]),
                                         {reinterpret_cast<std::int32_t*>(begins), reinterpret_cast<std::int32_t*>(begins + scratch.begins)},
                                         reinterpret_cast<ChannelSums*>(begins + scratch.begins + scratch.offsets)};
      backward.run(scratch.split, call.scratch.subspan(scratch.begins + scratch.offsets + scratch.sums));
      backward.write_parameter_gradients(data_or_null<T>(call.outputs[1]), data_or_null<T>(call.outputs[2]), data_or_null<T>(call.outputs[3]));
    });
  });
}

/// Refuses windows that the kernels do not do: the fusion pass then leaves the chain as it is.
void require_supported(const InferContext& call, const Geometry& geometry) {
  const PoolGeometry& pool = geometry.pool;
  call.require(geometry.pixels() <= std::numeric_limits<std::int32_t>::max(), "an image must have less than 2^31 elements");
  call.require(geometry.window_columns() <= Maxima<float>::capacity && geometry.kernel_elements() < Maxima<float>::outside, "kernel_size ",
               call.as<ChainAttributes>().kernel_size, " is too big");
  for (std::size_t axis = 1; axis <= 2; ++axis) {
    for (std::int64_t o = 0; o < pool.output[axis]; ++o) {
      const KernelRange inside = kernel_range(pool, axis, o, o);
      call.require(inside.begin < inside.end, "window ", o, " of an image axis of size ", pool.image[axis], " lies in the padding alone");
    }
  }
}

/// Checks input number `input` and the parameters after it, and gives the types of (output, winner, mean, rstd).
std::vector<TensorType> chain_types(const InferContext& call, std::size_t input) {
  const Shape& shape = call.shape(input);
  const auto& attributes = call.as<ChainAttributes>();
  call.require(shape.rank() == 4, "expected input (N, C, H, W), got ", shape);
  call.require(attributes.num_groups > 0, "num_groups must be greater than 0, got ", attributes.num_groups);
  call.require(shape[1] % attributes.num_groups == 0, "the number of channels must be divisible by num_groups, got input ", shape,
               " and num_groups ", attributes.num_groups);
  call.require(element_count(shape) != attributes.num_groups, "expected more than 1 value per group, got input ", shape, " and num_groups ",
               attributes.num_groups);
  const Geometry geometry(shape, attributes);
  require_supported(call, geometry);
  const DType dtype = call.inputs[input].dtype;
  const Shape per_channel[] = {{shape[1]}, {shape[1]}, {shape[1], 1, 1}};
  for (std::size_t i = 0; i < 3; ++i) {
    const TensorType expected{dtype, per_channel[i]};
    call.require(call.inputs[input + 1 + i] == expected, call.op.inputs[input + 1 + i].name, " must be ", expected, ", got ",
                 call.inputs[input + 1 + i], " (input ", shape, ")");
  }
  const Shape output = pool_output_shape(shape, geometry.pool);
  const TensorType statistics{DType::f64, {geometry.samples, geometry.groups}};
  return {{dtype, output}, {winner_dtype(geometry.kernel_elements()), output}, statistics, statistics};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const std::vector<TensorType> forward = chain_types(call, 1);
  for (const auto& [input, result] : {std::pair{0, 0}, {5, 1}, {6, 2}, {7, 3}}) {
    const auto i = static_cast<std::size_t>(input), r = static_cast<std::size_t>(result);
    call.require(call.inputs[i] == forward[r], call.op.inputs[i].name, " must be ", forward[r], ", got ", call.inputs[i]);
  }
  return {call.inputs[1], call.inputs[2], call.inputs[3], call.inputs[4]};
}

Values gradient_rule(const GradientContext& c) {
  return emit("group_norm_scale_max_pool_clamp_backward",
              {c.gradients[0], c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[3], c.outputs[1], c.outputs[2], c.outputs[3]}, c.attributes);
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<ChainAttributes>();
  const Value y = group_norm(inputs[0], a.num_groups, inputs[1], inputs[2], a.eps) * inputs[3];
  return {clamp(max_pool2d(y, a.pool()), a.min, a.max)};
}

/// The nodes are group_norm, multiply, max_pool2d, clamp.
std::optional<Attributes> fuse(std::span<const Attributes> matched) {
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
  return {sample({2, 4, 6, 6}, {.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1}),
          sample({1, 3, 7, 5}, {.num_groups = 1, .eps = 0.1, .kernel_size = {2}, .min = -1, .max = std::nullopt}),
          sample({2, 2, 5, 7}, {.num_groups = 2, .kernel_size = {3}, .stride = {2}, .padding = {1}, .min = -0.5, .max = 0.75}),
          sample({1, 2, 6, 5}, {.num_groups = 1, .kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}, .max = 1}),
          sample({1, 1, 5, 7}, {.num_groups = 1, .kernel_size = {4, 3}, .stride = {4, 3}, .ceil_mode = true, .min = -1}),
          sample({1, 2, 8, 9}, {.num_groups = 1, .kernel_size = {4}, .min = -1, .max = 1}, Fill::zeros, Fill::normal, false),
          sample({1, 2, 5, 5}, {.num_groups = 2, .kernel_size = {2}, .stride = {5}, .min = 0.5, .max = -0.5}, Fill::normal, Fill::zeros, false),
          sample({1, 1, 17, 18}, {.num_groups = 1, .kernel_size = {17}, .min = -2, .max = 2}),
          sample({1, 2, 1, 261}, {.num_groups = 1, .kernel_size = {1, 2}, .min = 0, .max = 1}, Fill::normal, Fill::normal, false),
          sample({0, 4, 6, 6}, {.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1})};
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result;
  for (const Sample& sample : samples()) {
    const auto& attributes = sample.attributes.as<ChainAttributes>();
    if (!attributes.padding.empty()) continue;  // not every number is a winner's
    const Shape& input = sample.inputs[0].shape;
    const Geometry geometry(input, attributes);
    const Shape output = pool_output_shape(input, geometry.pool);
    SampleInput statistics({geometry.samples, geometry.groups}, Fill::positive);
    statistics.floating = false;
    statistics.dtype = DType::f64;
    result.push_back({.inputs = {output, sample.inputs[0], sample.inputs[1], sample.inputs[2], sample.inputs[3],
                                 SampleInput::indices(output, attributes.ceil_mode ? 1 : geometry.kernel_elements(), winner_dtype(geometry.kernel_elements())),
                                 statistics, statistics},
                      .attributes = attributes});
  }
  return result;
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "group_norm_scale_max_pool_clamp",
      .summary = "clamp(max_pool2d(group_norm(input, num_groups, weight, bias, eps) * scale), min, max)",
      .inputs = {"input", "weight", "bias", "scale"},
      .outputs = {"output", "winner", "mean", "rstd"},
      .infer = [](const InferContext& call) { return chain_types(call, 0); },
      .gradient = gradient_rule,
      .decompose = decompose,
      .fuse = fuse,
      .cpu = {run_forward},
      .samples = samples,
  });
  registry.add<ChainAttributes>({
      .name = "group_norm_scale_max_pool_clamp_backward",
      .summary = "the gradients of group_norm_scale_max_pool_clamp",
      .inputs = {"gradient", "input", "weight", "bias", "scale", "winner", "mean", "rstd"},
      .outputs = {"input_gradient", "weight_gradient", "bias_gradient", "scale_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {run_backward},
      .scratch = [](const InferContext& call) {
        return BackwardScratch(Geometry(call.shape(1), call.as<ChainAttributes>()), call.inputs[1].dtype).total();
      },
      .in_place = {{0, 1}},
      .samples = backward_samples,
  });
}
