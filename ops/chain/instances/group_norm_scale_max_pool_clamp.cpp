#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"

#include <limits>

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/stages/window_maxima.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// Two passes over each group, of which the second finds it in the cache.
template <class T>
struct Forward {
  Geometry geometry;
  WindowTiling tiling;
  const T *input, *weight, *bias, *scale;
  Clamp<T> clamp;
  double eps;
  T *output, *argmax_input;
  double *means, *rstds;  // (N, G)

  /// Reduces the rows of windows [begin, ...) of one row of windows: the image columns that they touch go to places [first, end).
  void reduce_rows(const ScaledGroupChannel<T>& channel, std::int64_t plane, std::int64_t row, std::int64_t begin, std::int64_t first,
                   std::int64_t end, WindowMaxima<T>& columns) const {
    const PoolGeometry& pool = geometry.pool;
    const std::int64_t left = pool.window_begin(2, begin);
    const std::int64_t low = std::max<std::int64_t>(left, 0), high = std::min(left + end - first, pool.image[2]);
    const std::int64_t elements = geometry.samples * geometry.channels * geometry.pixels();
    const KernelRange heights = kernel_range(pool, 1, row, row);
    for (std::int64_t kh = heights.begin; kh < heights.end; ++kh) {
      const std::int64_t h = pool.window_begin(1, row) + kh * pool.dilation[1];
      const std::int64_t offset = plane * geometry.pixels() + h * pool.image[2] + low;
      const std::int64_t count = std::min(whole_vectors(high - low), elements - offset);
      const auto number = static_cast<std::int32_t>(kh * pool.kernel[2]);
      if (kh == heights.begin) {
        columns.set_row(channel, input + offset, first + low - left, count, number);
      } else {
        columns.take_row(channel, input + offset, first + low - left, count, number);
      }
    }
    columns.clear(first, first + low - left);
    columns.clear(first + high - left, end);
  }

  /// The maxima of `rows` times `count` windows; those of row r begin at place r * tiling.pitch.
  template <int known_stride>
  void reduce_tile(const ScaledGroupChannel<T>& channel, std::int64_t plane, std::int64_t row, std::int64_t rows, std::int64_t begin,
                   std::int64_t count, WindowMaxima<T>& maxima) const {
    WindowMaxima<T> columns;
    const std::int64_t windows = std::min(whole_vectors((rows - 1) * tiling.pitch + count), tiling.most_windows());
    const std::int64_t row_columns = tiling.pitch * tiling.stride;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t end = r + 1 < rows ? (r + 1) * row_columns : tiling.columns_of(windows);
      reduce_rows(channel, plane, row + r, begin, r * row_columns, end, columns);
    }
    maxima.template reduce_columns<known_stride>(columns, tiling.stride, geometry.pool.dilation[2], geometry.pool.kernel[2], windows);
    std::transform(maxima.value.begin(), maxima.value.begin() + windows, maxima.value.begin(), clamp);
  }

  template <int known_stride, class Index>
  void pool_plane(const ScaledGroupChannel<T>& channel, std::int64_t plane, Index* argmax) const {
    const std::int64_t height = geometry.pool.output[1], width = geometry.pool.output[2];
    WindowMaxima<T> maxima;
    for (std::int64_t row = 0; row < height; row += tiling.rows) {
      const std::int64_t rows = std::min(tiling.rows, height - row);
      for (std::int64_t begin = 0; begin < width; begin += tiling.windows) {
        const std::int64_t count = std::min(tiling.windows, width - begin);
        reduce_tile<known_stride>(channel, plane, row, rows, begin, count, maxima);
        const std::int64_t place = plane * geometry.windows() + row * width + begin;
        if (tiling.pitch == count) {
          write(maxima, 0, rows * count, place, argmax);
        } else {
          for (std::int64_t r = 0; r < rows; ++r) write(maxima, r * tiling.pitch, count, place + r * width, argmax);
        }
        for (std::int64_t r = 0; r < rows && argmax_input != nullptr; ++r) {
          select(plane, row + r, begin, count, maxima.number.data() + r * tiling.pitch);
        }
      }
    }
  }

  template <class Index>
  void write(const WindowMaxima<T>& maxima, std::int64_t first, std::int64_t count, std::int64_t place, Index* argmax) const {
    if (output != nullptr) std::copy_n(maxima.value.data() + first, count, output + place);
    if (argmax == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) argmax[place + i] = static_cast<Index>(maxima.number[static_cast<std::size_t>(first + i)]);
  }

  /// The elements that won in some windows of a row, given their numbers.
  void select(std::int64_t plane, std::int64_t row, std::int64_t begin, std::int64_t count, const std::int32_t* numbers) const {
    const PoolGeometry& pool = geometry.pool;
    const auto kernel_width = static_cast<std::int32_t>(pool.kernel[2]);
    T* const to = argmax_input + plane * geometry.windows() + row * pool.output[2] + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t kh = numbers[i] / kernel_width, kw = numbers[i] % kernel_width;
      const std::int64_t h = pool.window_begin(1, row) + kh * pool.dilation[1], w = pool.window_begin(2, begin + i) + kw * pool.dilation[2];
      to[i] = input[plane * geometry.pixels() + h * pool.image[2] + w];
    }
  }

  SliceStatistics find_statistics(std::int64_t slice) const {
    const T* const x = input + slice * geometry.group_pixels();
    return slice_statistics(
        geometry.group_pixels(), [x](std::int64_t i) { return x[i]; }, eps);
  }

  template <int known_stride, class Index>
  void run(Index* argmax) const {
    const WorkSplit split(geometry.slices(), geometry.group_pixels() * 8, 0);
    split.run({}, [&](std::int64_t slice, std::byte*) {
      const SliceStatistics statistics = find_statistics(slice);
      if (means != nullptr) means[slice] = statistics.mean;
      if (rstds != nullptr) rstds[slice] = statistics.rstd;
      for (std::int64_t i = 0; i < geometry.group_channels(); ++i) {
        const std::int64_t plane = slice * geometry.group_channels() + i, c = plane % geometry.channels;
        pool_plane<known_stride>({statistics.mean, statistics.rstd, weight[c], bias[c], scale[c]}, plane, argmax);
      }
    });
  }
};

/// inputs (input, weight, bias, scale), outputs (output, argmax, mean, rstd, argmax_input)
void run_forward(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const Geometry geometry(call.inputs[0].shape(), attributes);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Forward<T> forward{.geometry = geometry,
                             .tiling = WindowTiling(geometry.pool),
                             .input = call.inputs[0].data<T>(),
                             .weight = call.inputs[1].data<T>(),
                             .bias = call.inputs[2].data<T>(),
                             .scale = call.inputs[3].data<T>(),
                             .clamp = Clamp<T>(attributes.clamp()),
                             .eps = attributes.eps,
                             .output = data_or_null<T>(call.outputs[0]),
                             .argmax_input = data_or_null<T>(call.outputs[4]),
                             .means = data_or_null<double>(call.outputs[2]),
                             .rstds = data_or_null<double>(call.outputs[3])};
    dispatch_argmax(argmax_dtype(geometry.kernel_elements()), [&]<class Index>() {
      Index* const argmax = data_or_null<Index>(call.outputs[1]);
      switch (geometry.pool.stride[2]) {  // a stride that is known makes the loops over windows faster
        case 2: return forward.template run<2>(argmax);
        case 3: return forward.template run<3>(argmax);
        case 4: return forward.template run<4>(argmax);
        default: return forward.template run<0>(argmax);
      }
    });
  });
}

/// Refuses windows that the kernels do not do: the fusion pass then leaves the chain as it is.
void require_supported(const InferContext& call, const Geometry& geometry) {
  const PoolGeometry& pool = geometry.pool;
  call.require(geometry.pixels() <= std::numeric_limits<std::int32_t>::max(), "an image must have less than 2^31 elements");
  call.require(WindowTiling(pool).fits() && geometry.kernel_elements() < WindowMaxima<float>::outside, "kernel_size ",
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
      .any_precision = {1, 2, 3},
      .cpu = {run_forward},
      .samples = samples,
  });
}
