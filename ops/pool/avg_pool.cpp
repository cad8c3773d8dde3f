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

/// Columns of an output row that are computed together.
constexpr std::int64_t block = 128;

/// How many elements a window's mean counts along one axis: those of the image, or those of the image with its padding.
std::int64_t window_extent(const PoolGeometry& g, std::size_t axis, std::int64_t o, bool count_padding) {
  const std::int64_t begin = g.window_begin(axis, o), padding = count_padding ? g.padding[axis] : 0;
  return std::min(begin + g.kernel[axis], g.image[axis] + padding) - std::max(begin, -padding);
}

/// The divisors of the output columns from `begin` on.
using Divisors = std::array<double, block>;
Divisors divisors(const PoolGeometry& g, std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end,
                  bool count_padding) {
  const std::int64_t row = window_extent(g, 0, depth, count_padding) * window_extent(g, 1, height, count_padding);
  Divisors result;
  for (std::int64_t o = begin; o < end; ++o) {
    result[static_cast<std::size_t>(o - begin)] = static_cast<double>(row * window_extent(g, 2, o, count_padding));
  }
  return result;
}

/// Calls body(depth, height, begin, end) for the blocks of columns of the output rows [first_row, end_row) of a plane.
template <class Body>
void for_each_block(const PoolGeometry& g, std::int64_t first_row, std::int64_t end_row, const Body& body) {
  for (std::int64_t row = first_row; row < end_row; ++row) {
    for (std::int64_t begin = 0; begin < g.output[2]; begin += block) {
      body(row / g.output[1], row % g.output[1], begin, std::min(begin + block, g.output[2]));
    }
  }
}

template <class T, int column_stride>
void pool_planes(const PoolGeometry& g, bool count_padding, const T* input, T* output) {
  const std::int64_t step = column_stride == 0 ? g.stride[2] : column_stride;
  const std::int64_t rows = g.output[0] * g.output[1];
  parallel_for(g.planes * rows, row_grain(g), [&](std::int64_t first_row, std::int64_t end_row) {
    for (std::int64_t row = first_row; row < end_row; ++row) {
      const T* const plane = input + row / rows * g.image_elements();
      T* const y = output + row * g.output[2];
      const std::int64_t in_plane = row % rows;
      for_each_block(g, in_plane, in_plane + 1, [&](std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end) {
        std::array<double, block> sums{};
        for_each_kernel_element(g, depth, height, begin, end, [&](std::int64_t first, std::int64_t low, std::int64_t high) {
          const T* const x = plane + first + low * step;
          double* const sum = sums.data() + (low - begin);
          for (std::int64_t i = 0; i < high - low; ++i) sum[i] += static_cast<double>(x[i * step]);
        });
        const Divisors divisor = divisors(g, depth, height, begin, end, count_padding);
        for (std::int64_t i = 0; i < end - begin; ++i) {
          y[begin + i] = static_cast<T>(sums[static_cast<std::size_t>(i)] / divisor[static_cast<std::size_t>(i)]);
        }
      });
    }
  });
}

/// The planes in parallel, the windows of a plane in order.
template <class T, int column_stride>
void spread_planes(const PoolGeometry& g, bool count_padding, const T* gradient, T* input_gradient) {
  const std::int64_t step = column_stride == 0 ? g.stride[2] : column_stride;
  const std::int64_t rows = g.output[0] * g.output[1], elements = g.image_elements();
  parallel_for(g.planes, std::max<std::int64_t>(1, 16384 / elements), [&](std::int64_t first_plane, std::int64_t end_plane) {
    for (std::int64_t plane = first_plane; plane < end_plane; ++plane) {
      T* const dx = input_gradient + plane * elements;
      std::fill_n(dx, elements, T{0});
      for_each_block(g, 0, rows, [&](std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end) {
        const Divisors divisor = divisors(g, depth, height, begin, end, count_padding);
        const T* const row = gradient + ((plane * g.output[0] + depth) * g.output[1] + height) * g.output[2] + begin;
        std::array<T, block> shares;
        for (std::int64_t i = 0; i < end - begin; ++i) {
          const std::size_t j = static_cast<std::size_t>(i);
          shares[j] = static_cast<T>(static_cast<double>(row[i]) / divisor[j]);
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

/// What an element counts in each window of a plane.
std::vector<double> all_shares(const PoolGeometry& g, bool count_padding) {
  std::vector<double> result;
  for (std::int64_t row = 0; row < g.output[0] * g.output[1]; ++row) {
    const std::int64_t depth = row / g.output[1], height = row % g.output[1];
    const std::int64_t extent = window_extent(g, 0, depth, count_padding) * window_extent(g, 1, height, count_padding);
    for (std::int64_t o = 0; o < g.output[2]; ++o)
      result.push_back(1 / static_cast<double>(extent * window_extent(g, 2, o, count_padding)));
  }
  return result;
}

/// Of images that lie channels-last. Sums are of type S.
template <class S, class T>
void pool_channels(const PoolGeometry& g, std::int64_t channels, bool count_padding, const T* input, T* output) {
  const std::vector<double> shares = all_shares(g, count_padding);
  ChannelGather(g, channels, false).for_each<S>([&]<class V, int vectors>(const GatheredPixel& pixel, std::int64_t c) {
    constexpr std::int64_t lanes = sizeof(V) / sizeof(S);
    V sum[vectors] = {};
    for (const std::int64_t place : pixel.places) {
      const T* const x = input + pixel.from + place * channels + c;
      for (int v = 0; v < vectors; ++v) sum[v] += load_as<V>(x + v * lanes);
    }
    const auto share = static_cast<S>(shares[static_cast<std::size_t>(pixel.place)]);
    for (int v = 0; v < vectors; ++v) store_as(output + pixel.to + c + v * lanes, sum[v] * share);
  });
}

template <class T>
void spread_channels(const PoolGeometry& g, std::int64_t channels, bool count_padding, const T* gradient, T* input_gradient) {
  const std::vector<double> shares = all_shares(g, count_padding);
  ChannelGather(g, channels, true).for_each<T>([&]<class V, int vectors>(const GatheredPixel& pixel, std::int64_t c) {
    constexpr std::int64_t lanes = sizeof(V) / sizeof(T);
    V sum[vectors] = {};
    for (const std::int64_t place : pixel.places) {
      const T* const x = gradient + pixel.from + place * channels + c;
      const auto share = static_cast<T>(shares[static_cast<std::size_t>(place)]);
      for (int v = 0; v < vectors; ++v) sum[v] += load_as<V>(x + v * lanes) * share;
    }
    for (int v = 0; v < vectors; ++v) store_as(input_gradient + pixel.to + c + v * lanes, sum[v]);
  });
}

void run(const KernelContext& call) {
  const PoolOptions& options = call.as<PoolOptions>();
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), options);
  constexpr std::int64_t few = 32;  // so few terms that their sum needs no more digits than they have
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    if (lie_channels_last(call)) {
      const auto pool = g.kernel[0] * g.kernel[1] * g.kernel[2] <= few ? pool_channels<T, T> : pool_channels<double, T>;
      return pool(g, call.inputs[0].dim(1), options.count_include_pad, call.inputs[0].data<T>(), call.outputs[0].data<T>());
    }
    dispatch_column_stride<T>(g, [&]<int column_stride>() {
      pool_planes<T, column_stride>(g, options.count_include_pad, call.inputs[0].data<T>(), call.outputs[0].data<T>());
    });
  });
}

void run_backward(const KernelContext& call) {
  const PoolOptions& options = call.as<PoolBackwardAttributes>().options;
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), options);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const gradient = call.inputs[0].data<T>();
    if (lie_channels_last(call))
      return spread_channels(g, call.outputs[0].dim(1), options.count_include_pad, gradient, call.outputs[0].data<T>());
    dispatch_column_stride<T>(g, [&]<int column_stride>() {
      spread_planes<T, column_stride>(g, options.count_include_pad, call.inputs[0].data<T>(), call.outputs[0].data<T>());
    });
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

std::vector<Sample> samples_2d() {
  return {{.inputs = {Shape{2, 2, 4, 4}}, .attributes = PoolOptions{.kernel_size = {2}}},
          {.inputs = {Shape{1, 2, 5, 7}}, .attributes = PoolOptions{.kernel_size = {3}, .stride = {2}, .padding = {1}}},
          {.inputs = {Shape{1, 1, 6, 5}},
           .attributes = PoolOptions{.kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .count_include_pad = false}},
          {.inputs = {Shape{1, 1, 5, 5}}, .attributes = PoolOptions{.kernel_size = {2}, .padding = {1}, .ceil_mode = true}},
          {.inputs = {Shape{1, 2, 7, 4}}, .attributes = PoolOptions{.kernel_size = {2, 1}, .stride = {3, 3}}},
          {.inputs = {Shape{2, 8, 7, 5}}, .attributes = PoolOptions{.kernel_size = {3}, .stride = {2}, .padding = {1}}},
          {.inputs = {Shape{1, 2, 12, 13}}, .attributes = PoolOptions{.kernel_size = {12, 13}}},
          {.inputs = {Shape{1, 3, 1, 1}}, .attributes = PoolOptions{.kernel_size = {1}}},
          {.inputs = {Shape{1, 43, 3, 3}}, .attributes = PoolOptions{.kernel_size = {2}, .stride = {1}}},
          {.inputs = {Shape{2, 3, 1, 1}}, .attributes = PoolOptions{.kernel_size = {2}, .stride = {1}, .padding = {1}}},
          {.inputs = {Shape{0, 2, 4, 4}}, .attributes = PoolOptions{.kernel_size = {2}}}};
}

std::vector<Sample> samples_3d() {
  return {{.inputs = {Shape{1, 2, 2, 4, 4}}, .attributes = PoolOptions{.kernel_size = {2}}},
          {.inputs = {Shape{1, 1, 3, 4, 5}},
           .attributes = PoolOptions{.kernel_size = {3, 2, 3}, .stride = {1, 2, 2}, .padding = {1, 0, 1}, .count_include_pad = false}},
          {.inputs = {Shape{1, 1, 3, 3, 5}}, .attributes = PoolOptions{.kernel_size = {2}, .padding = {1}, .ceil_mode = true}},
          {.inputs = {Shape{2, 1, 1, 1, 1}}, .attributes = PoolOptions{.kernel_size = {1}}},
          {.inputs = {Shape{0, 2, 2, 2, 2}}, .attributes = PoolOptions{.kernel_size = {2}}}};
}

std::vector<Sample> backward_samples(int image_rank) {
  std::vector<Sample> result;
  for (const Sample& forward : image_rank == 2 ? samples_2d() : samples_3d()) {
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
      .samples = image_rank == 2 ? samples_2d : samples_3d,
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
