#include "frit/core/thread_pool.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/pool/channel_windows.h"
#include "frit/ops/pool/pool_geometry.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {

Value global_avg_pool(Value input) {
  require(input.rank() >= 3, "global_avg_pool: expected input (N, C, ...) with image axes, got ", input.shape());
  Dims image;
  for (int axis = 2; axis < input.rank(); ++axis) image.push_back(axis);
  return mean(input, image, /*keep_dims=*/true);
}

namespace ops {
namespace {

/// How many elements a window's mean counts: the product of a number for each of its places along each axis.
class WindowSizes {
 public:
  /// Elements of the image, or those of the image with its padding.
  WindowSizes(const PoolGeometry& g, bool count_padding) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t padding = count_padding ? g.padding[axis] : 0;
      for (std::int64_t o = 0; o < g.output[axis]; ++o) {
        const std::int64_t begin = g.window_begin(axis, o);
        along_[axis].push_back(std::min(begin + g.kernel[axis], g.image[axis] + padding) - std::max(begin, -padding));
      }
    }
  }

  double at(std::int64_t depth, std::int64_t height, std::int64_t column) const {
    const auto i = [](std::int64_t place) { return static_cast<std::size_t>(place); };
    return static_cast<double>(along_[0][i(depth)] * along_[1][i(height)] * along_[2][i(column)]);
  }
  /// What an element counts in each window of a plane.
  std::vector<double> shares() const {
    std::vector<double> result;
    for (const std::int64_t depth : along_[0]) {
      for (const std::int64_t height : along_[1]) {
        for (const std::int64_t width : along_[2]) result.push_back(1 / static_cast<double>(depth * height * width));
      }
    }
    return result;
  }

 private:
  std::array<std::vector<std::int64_t>, 3> along_;
};

template <class T, int column_stride>
void pool_planes(const PoolGeometry& g, const WindowSizes& sizes, const T* input, T* output) {
  const std::int64_t step = column_stride == 0 ? g.stride[2] : column_stride, rows = g.output[0] * g.output[1];
  parallel_for(g.planes * rows, row_grain(g), [&](std::int64_t first_row, std::int64_t end_row) {
    for_each_block(g, first_row, end_row,
                   [&](std::int64_t row, std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end) {
                     const T* const plane = input + row / rows * g.image_elements();
                     T* const y = output + row * g.output[2];
                     std::array<double, pool_block> sums{};
                     for_each_kernel_element(g, depth, height, begin, end, [&](std::int64_t first, std::int64_t low, std::int64_t high) {
                       const T* const x = plane + first + low * step;
                       double* const sum = sums.data() + (low - begin);
                       for (std::int64_t i = 0; i < high - low; ++i) sum[i] += static_cast<double>(x[i * step]);
                     });
                     for (std::int64_t o = begin; o < end; ++o) {
                       y[o] = static_cast<T>(sums[static_cast<std::size_t>(o - begin)] / sizes.at(depth, height, o));
                     }
                   });
  });
}

/// The planes in parallel, the windows of a plane in order.
template <class T, int column_stride>
void spread_planes(const PoolGeometry& g, const WindowSizes& sizes, const T* gradient, T* input_gradient) {
  const std::int64_t step = column_stride == 0 ? g.stride[2] : column_stride;
  const std::int64_t rows = g.output[0] * g.output[1], elements = g.image_elements();
  parallel_for(g.planes, std::max<std::int64_t>(1, 16384 / elements), [&](std::int64_t first_plane, std::int64_t end_plane) {
    for (std::int64_t plane = first_plane; plane < end_plane; ++plane) {
      T* const dx = input_gradient + plane * elements;
      std::fill_n(dx, elements, T{0});
      for_each_block(g, plane * rows, (plane + 1) * rows,
                     [&](std::int64_t row, std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end) {
                       const T* const of_row = gradient + row * g.output[2];
                       std::array<T, pool_block> shares;
                       for (std::int64_t o = begin; o < end; ++o) {
                         shares[static_cast<std::size_t>(o - begin)] =
                             static_cast<T>(static_cast<double>(of_row[o]) / sizes.at(depth, height, o));
                       }
                       for_each_kernel_element(g, depth, height, begin, end, [&](std::int64_t first, std::int64_t low, std::int64_t high) {
                         T* const target = dx + first + low * step;
                         const T* const share = shares.data() + (low - begin);
                         for (std::int64_t i = 0; i < high - low; ++i) target[i * step] += share[i];
                       });
                     });
    }
  });
}

/// Of images that lie channels-last: the means, or, backward, each element's shares of the windows' gradients. Sums are of type S.
template <class S, bool backward, class T>
void average_channels(const PoolGeometry& g, std::int64_t channels, const WindowSizes& sizes, const T* input, T* output) {
  const std::vector<double> shares = sizes.shares();
  ChannelGather(g, channels, backward).for_each<S>([&]<class V, int vectors>(const GatheredPixel& pixel, std::int64_t c) {
    constexpr std::int64_t lanes = sizeof(V) / sizeof(S);
    const auto share_at = [&](std::int64_t place) { return static_cast<S>(shares[static_cast<std::size_t>(place)]); };
    V sum[vectors] = {};
    for (const std::int64_t place : pixel.places) {
      const T* const x = input + pixel.from + place * channels + c;
      for (int v = 0; v < vectors; ++v) {
        const V element = load_as<V>(x + v * lanes);
        sum[v] += backward ? element * share_at(place) : element;
      }
    }
    for (int v = 0; v < vectors; ++v) {
      store_as(output + pixel.to + c + v * lanes, backward ? sum[v] : sum[v] * share_at(pixel.place));
    }
  });
}

void run(const KernelContext& call) {
  const PoolOptions& options = call.as<PoolOptions>();
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), options);
  const WindowSizes sizes(g, options.count_include_pad);
  constexpr std::int64_t few = 32;  // so few terms that their sum needs no more digits than they have
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const input = call.inputs[0].data<T>();
    T* const output = call.outputs[0].data<T>();
    if (lie_channels_last(call)) {
      const bool small = g.kernel[0] * g.kernel[1] * g.kernel[2] <= few;
      return (small ? average_channels<T, false, T> : average_channels<double, false, T>)(g, call.inputs[0].dim(1), sizes, input, output);
    }
    dispatch_column_stride<T>(g, [&]<int column_stride>() { pool_planes<T, column_stride>(g, sizes, input, output); });
  });
}

void run_backward(const KernelContext& call) {
  const PoolOptions& options = call.as<PoolBackwardAttributes>().options;
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), options);
  const WindowSizes sizes(g, options.count_include_pad);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const gradient = call.inputs[0].data<T>();
    T* const output = call.outputs[0].data<T>();
    if (lie_channels_last(call)) return average_channels<T, true>(g, call.outputs[0].dim(1), sizes, gradient, output);
    dispatch_column_stride<T>(g, [&]<int column_stride>() { spread_planes<T, column_stride>(g, sizes, gradient, output); });
  });
}

void require_plain(const InferContext& call, const PoolOptions& options) {
  for (const std::int64_t dilation : options.dilation) call.require(dilation == 1, "dilation must be 1, got ", options.dilation);
}

std::vector<TensorType> infer(const InferContext& call, int image_rank) {
  const PoolOptions& options = call.as<PoolOptions>();
  require_plain(call, options);
  return {{call.inputs[0].dtype, pool_output_shape(call.shape(0), pool_geometry(call.shape(0), options, image_rank))}};
}

std::vector<TensorType> infer_backward(const InferContext& call, int image_rank) {
  require_plain(call, call.as<PoolBackwardAttributes>().options);
  return {{call.inputs[0].dtype, pool_input_shape(call, image_rank)}};
}

/// Of windows that all lie inside the image.
std::optional<Averaging> averaging(const Shape& input, const Attributes& attributes) {
  const PoolGeometry g = pool_geometry(input, attributes.as<PoolOptions>());
  Averaging averages{.result = pool_output_shape(input, g)};
  for (std::size_t axis = static_cast<std::size_t>(5 - input.rank()); axis < 3; ++axis) {
    const bool inside = g.padding[axis] == 0 && g.window_begin(axis, g.output[axis] - 1) + g.kernel[axis] <= g.image[axis];
    if (!inside) return std::nullopt;
    averages.image.push_back(g.image[axis]);
    averages.window.push_back(g.kernel[axis]);
    averages.stride.push_back(g.stride[axis]);
  }
  return averages;
}

std::vector<Sample> samples(int image_rank) {
  std::vector<Sample> result = pool_samples(image_rank, Fill::normal);
  const auto add = [&](const Shape& shape, const PoolOptions& options) { result.push_back({.inputs = {shape}, .attributes = options}); };
  if (image_rank == 2) {
    add({1, 1, 6, 5}, {.kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .count_include_pad = false});
    add({1, 1, 5, 5}, {.kernel_size = {2}, .padding = {1}, .ceil_mode = true});
  } else {
    add({1, 1, 3, 4, 5}, {.kernel_size = {3, 2, 3}, .stride = {1, 2, 2}, .padding = {1, 0, 1}, .count_include_pad = false});
    add({1, 1, 3, 3, 5}, {.kernel_size = {2}, .padding = {1}, .ceil_mode = true});
  }
  return result;
}

std::vector<Sample> backward_samples(int image_rank) {
  std::vector<Sample> result;
  for (const Sample& forward : samples(image_rank)) {
    const Shape& input = forward.inputs[0].shape;
    const PoolOptions& options = forward.attributes.as<PoolOptions>();
    result.push_back(
        {.inputs = {pool_output_shape(input, pool_geometry(input, options))}, .attributes = pool_backward_attributes(input, options)});
  }
  return result;
}

void add(Registry& registry, int image_rank) {
  const std::string name = concat("avg_pool", image_rank, "d");
  registry.add<PoolOptions>({
      .name = name,
      .summary = "the mean of each window",
      .inputs = {"input"},
      .infer = [image_rank](const InferContext& call) { return infer(call, image_rank); },
      .gradient =
          [name](const GradientContext& c) {
            return emit(name + "_backward", {c.gradients[0]}, pool_backward_attributes(c.inputs[0].shape(), c.as<PoolOptions>()));
          },
      .averaging = averaging,
      .staged_inputs = {{0}},
      .staged_output = true,
      .samples_in = samples_of_input_0,
      .cpu = {.run = run, .any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true},
      .samples = [image_rank] { return samples(image_rank); },
  });
  registry.add<PoolBackwardAttributes>({
      .name = name + "_backward",
      .summary = "spreads each window's gradient evenly over its elements",
      .inputs = {"gradient"},
      .infer = [image_rank](const InferContext& call) { return infer_backward(call, image_rank); },
      .gradient = [name](const GradientContext& c) { return emit(name, {c.gradients[0]}, c.as<PoolBackwardAttributes>().options); },
      .staged_output = true,
      .cpu = {.run = run_backward, .any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true},
      .samples = [image_rank] { return backward_samples(image_rank); },
  });
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(avg_pool) {
  add(registry, 2);
  add(registry, 3);
}
