#include <limits>

#include "frit/core/thread_pool.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/pool/channel_windows.h"
#include "frit/ops/pool/pool_geometry.h"

namespace frit::ops {
namespace {

/// The first element of a window along an axis that is not in the padding; beyond the image if a dilated window has none.
std::int64_t first_element(const PoolGeometry& g, std::size_t axis, std::int64_t o) {
  const std::int64_t begin = g.window_begin(axis, o);
  return begin < 0 ? begin + kernel_range(g, axis, o, o).begin * g.dilation[axis] : begin;
}

/// The maxima of a block of windows and, if wanted, their places in the plane. They begin as -inf at each window's first place, or -1, so
/// that an element is taken only if it is larger, or NaN.
template <class T, bool with_indices>
class Maxima {
 public:
  void begin(const PoolGeometry& g, std::int64_t depth, std::int64_t height, std::int64_t first_column, std::int64_t count) {
    value.fill(-std::numeric_limits<T>::infinity());
    if constexpr (with_indices) {
      const std::int64_t d = first_element(g, 0, depth), h = first_element(g, 1, height), row = (d * g.image[1] + h) * g.image[2];
      const std::int64_t columns = d < g.image[0] && h < g.image[1] ? g.image[2] : 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t w = first_element(g, 2, first_column + i);
        index[static_cast<std::size_t>(i)] = w < columns ? static_cast<std::int32_t>(row + w) : -1;
      }
    }
    lanes_ = static_cast<std::int32_t>((count + 15) / 16 * 16);
  }

  /// Window i of [low, high) takes in element place + i * stride of the plane.
  template <int column_stride>
  void take(const T* plane, std::int64_t place, std::int64_t stride, std::int64_t low, std::int64_t high) {
    const std::int64_t step = column_stride == 0 ? stride : column_stride;
    // Padded to whole vectors: the compiler's loop over a rest would branch on the data.
    std::array<T, pool_block> candidates;
    candidates.fill(-std::numeric_limits<T>::infinity());
    for (std::int64_t i = low; i < high; ++i) candidates[static_cast<std::size_t>(i)] = plane[place + i * step];
    keep_larger(value.data(), index.data(), candidates.data(), lanes_, static_cast<std::int32_t>(place), static_cast<std::int32_t>(step));
  }

  std::array<T, pool_block> value;
  std::array<std::int32_t, pool_block> index;

 private:
  static void keep_larger(T* best, std::int32_t* places, const T* candidates, std::int32_t lanes, std::int32_t place, std::int32_t step) {
    for (std::int32_t i = 0; i < lanes; ++i) {
      const T candidate = candidates[i];
      const bool taken = replaces_maximum(candidate, best[i]);
      best[i] = taken ? candidate : best[i];
      if constexpr (with_indices) places[i] = taken ? place + i * step : places[i];
    }
  }

  std::int32_t lanes_ = 0;
};

template <class T, int column_stride, bool with_indices>
void pool_rows(const PoolGeometry& g, const T* input, T* output, std::int32_t* indices) {
  const std::int64_t rows = g.output[0] * g.output[1], columns = g.output[2];
  parallel_for(g.planes * rows, row_grain(g), [&](std::int64_t first_row, std::int64_t end_row) {
    Maxima<T, with_indices> maxima;
    for_each_block(g, first_row, end_row,
                   [&](std::int64_t row, std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end) {
                     const T* const plane = input + row / rows * g.image_elements();
                     maxima.begin(g, depth, height, begin, end - begin);
                     for_each_kernel_element(g, depth, height, begin, end, [&](std::int64_t first, std::int64_t low, std::int64_t high) {
                       maxima.template take<column_stride>(plane, first + begin * g.stride[2], g.stride[2], low - begin, high - begin);
                     });
                     if (output != nullptr) std::copy_n(maxima.value.data(), end - begin, output + row * columns + begin);
                     if constexpr (with_indices) std::copy_n(maxima.index.data(), end - begin, indices + row * columns + begin);
                   });
  });
}

/// Integers as wide as V's elements, or for one element int32.
template <class V>
using IndexOf = std::conditional_t<std::is_arithmetic_v<V>, std::int32_t, decltype(V{} != V{})>;

/// Of images that lie channels-last.
template <class T, bool with_indices>
void pool_channels(const PoolGeometry& g, std::int64_t channels, const T* input, T* output, std::int32_t* indices) {
  ChannelGather(g, channels, false).for_each<T>([&]<class V, int vectors>(const GatheredPixel& pixel, std::int64_t c) {
    using Index = IndexOf<V>;
    constexpr std::int64_t lanes = sizeof(V) / sizeof(T);
    V best[vectors];
    Index index[vectors];
    std::fill_n(best, vectors, repeated<V>(-std::numeric_limits<T>::infinity()));
    std::fill_n(index, vectors, repeated<Index>(static_cast<std::int32_t>(pixel.places.empty() ? -1 : pixel.places[0])));
    for (const std::int64_t place : pixel.places) {
      const T* const x = input + pixel.from + place * channels + c;
      for (int v = 0; v < vectors; ++v) {
        const V candidate = load_as<V>(x + v * lanes);
        const auto taken = (candidate > best[v]) | (candidate != candidate);  // as replaces_maximum
        best[v] = taken ? candidate : best[v];
        if constexpr (with_indices) index[v] = taken ? repeated<Index>(static_cast<std::int32_t>(place)) : index[v];
      }
    }
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t at = pixel.to + c + v * lanes;
      if (output != nullptr) store_as(output + at, best[v]);
      if constexpr (with_indices) store_as(indices + at, index[v]);
    }
  });
}

template <bool with_indices>
void pool(const KernelContext& call) {
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), call.as<PoolOptions>());
  std::int32_t* const indices = data_or_null<std::int32_t>(call.outputs[1]);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const input = call.inputs[0].data<T>();
    T* const output = data_or_null<T>(call.outputs[0]);
    if (lie_channels_last(call)) return pool_channels<T, with_indices>(g, call.inputs[0].dim(1), input, output, indices);
    dispatch_column_stride<T>(g, [&]<int column_stride>() { pool_rows<T, column_stride, with_indices>(g, input, output, indices); });
  });
}

void run(const KernelContext& call) { call.outputs[1].defined() ? pool<true>(call) : pool<false>(call); }

/// Of images that lie channels-last. Each element looks for its place in the windows that it is in.
template <class T>
void gather_channels(const PoolGeometry& g, std::int64_t channels, const T* gradient, const std::int32_t* indices, T* input_gradient) {
  ChannelGather(g, channels, true).for_each<T>([&]<class V, int vectors>(const GatheredPixel& pixel, std::int64_t c) {
    using Index = IndexOf<V>;
    constexpr std::int64_t lanes = sizeof(V) / sizeof(T);
    const Index own = repeated<Index>(static_cast<std::int32_t>(pixel.place));
    V sum[vectors] = {};
    for (const std::int64_t place : pixel.places) {
      const std::int64_t at = pixel.from + place * channels + c;
      for (int v = 0; v < vectors; ++v) {
        const auto chosen = load_as<Index>(indices + at + v * lanes) == own;
        sum[v] += chosen ? load_as<V>(gradient + at + v * lanes) : V{};
      }
    }
    for (int v = 0; v < vectors; ++v) store_as(input_gradient + pixel.to + c + v * lanes, sum[v]);
  });
}

/// The planes in parallel, the windows of a plane in order.
void run_backward(const KernelContext& call) {
  const Tensor& gradient = call.inputs[0];
  const Tensor& input_gradient = call.outputs[0];
  const std::int64_t planes = gradient.dim(0) * gradient.dim(1);
  if (planes == 0) return;
  const std::int64_t outputs = gradient.elements() / planes, elements = input_gradient.elements() / planes;
  const std::int32_t* const indices = call.inputs[1].data<std::int32_t>();
  dispatch_floating(gradient.dtype(), [&]<class T>() {
    if (lie_channels_last(call)) {
      const PoolGeometry g = pool_geometry(input_gradient.shape(), call.as<PoolBackwardAttributes>().options);
      return gather_channels(g, gradient.dim(1), gradient.data<T>(), indices, input_gradient.data<T>());
    }
    parallel_for(planes, std::max<std::int64_t>(1, 16384 / elements), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const T* const g = gradient.data<T>() + plane * outputs;
        const std::int32_t* const index = indices + plane * outputs;
        T* const dx = input_gradient.data<T>() + plane * elements;
        std::fill_n(dx, elements, T{0});
        for (std::int64_t i = 0; i < outputs; ++i) {
          if (index[i] >= 0) dx[index[i]] += g[i];
        }
      }
    });
  });
}

std::vector<TensorType> infer(const InferContext& call, int image_rank) {
  const Shape& input = call.shape(0);
  const PoolGeometry g = pool_geometry(input, call.as<PoolOptions>(), image_rank);
  call.require(g.image_elements() <= std::numeric_limits<std::int32_t>::max(), "an image must have less than 2^31 elements, got input ",
               input);
  const Shape output = pool_output_shape(input, g);
  return {{call.inputs[0].dtype, output}, {DType::i32, output}};
}

std::vector<TensorType> infer_backward(const InferContext& call, int image_rank) {
  const TensorType indices{DType::i32, call.shape(0)};
  call.require(call.inputs[1] == indices, "indices must be ", indices, ", got ", call.inputs[1]);
  return {{call.inputs[0].dtype, pool_input_shape(call, image_rank)}};
}

Sample sample(const Shape& input, PoolOptions options) { return {.inputs = {{input, Fill::distinct}}, .attributes = std::move(options)}; }

std::vector<Sample> samples(int image_rank) {
  std::vector<Sample> result = pool_samples(image_rank, Fill::distinct);
  if (image_rank == 2) {
    result.push_back(sample({1, 1, 6, 5}, {.kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}}));
    result.push_back(sample({1, 1, 5, 5}, {.kernel_size = {2}, .ceil_mode = true}));
    result.push_back(sample({1, 1, 3, 13}, {.kernel_size = {3, 13}}));
  } else {
    result.push_back(sample({1, 1, 3, 4, 5}, {.kernel_size = {3, 2, 3}, .stride = {1, 2, 2}, .padding = {1, 0, 1}}));
    result.push_back(sample({1, 1, 4, 3, 5}, {.kernel_size = {2}, .stride = {2, 1, 1}, .dilation = {1, 2, 3}}));
    result.push_back(sample({1, 1, 3, 3, 5}, {.kernel_size = {2}, .ceil_mode = true}));
  }
  return result;
}

/// Indices are drawn at random, so every window holds the whole image: a place beyond its window is nothing that the forward call gives.
std::vector<Sample> backward_samples(int image_rank) {
  const std::vector<Sample> forward_2d{sample({2, 3, 2, 2}, {.kernel_size = {2}}),
                                       sample({2, 8, 2, 3}, {.kernel_size = {2, 3}}),
                                       sample({1, 43, 1, 2}, {.kernel_size = {1, 4}, .stride = {1}, .padding = {0, 2}}),
                                       sample({1, 2, 2, 2}, {.kernel_size = {4}, .stride = {1}, .padding = {2}}),
                                       sample({2, 1, 2, 3}, {.kernel_size = {4, 6}, .stride = {2, 3}, .padding = {2, 3}}),
                                       sample({1, 1, 3, 13}, {.kernel_size = {3, 13}}),
                                       sample({0, 2, 4, 4}, {.kernel_size = {2}})};
  const std::vector<Sample> forward_3d{sample({2, 3, 2, 2, 2}, {.kernel_size = {2}}),
                                       sample({1, 2, 2, 2, 2}, {.kernel_size = {4}, .stride = {1}, .padding = {2}}),
                                       sample({2, 1, 1, 3, 2}, {.kernel_size = {1, 6, 4}, .stride = {1, 3, 2}, .padding = {0, 3, 2}}),
                                       sample({1, 1, 1, 1, 5}, {.kernel_size = {1, 1, 9}, .stride = {4}, .padding = {0, 0, 4}}),
                                       sample({0, 2, 2, 2, 2}, {.kernel_size = {2}})};
  std::vector<Sample> result;
  for (const Sample& forward : image_rank == 2 ? forward_2d : forward_3d) {
    const Shape& input = forward.inputs[0].shape;
    const PoolOptions& options = forward.attributes.as<PoolOptions>();
    const Shape output = pool_output_shape(input, pool_geometry(input, options));
    result.push_back(
        {.inputs = {output, SampleInput::indices(output, DType::i32)}, .attributes = pool_backward_attributes(input, options)});
  }
  return result;
}

void add(Registry& registry, int image_rank) {
  const std::string name = concat("max_pool", image_rank, "d");
  registry.add<PoolOptions>({
      .name = name,
      .summary = "the largest element of each window, and its place in the plane",
      .inputs = {"input"},
      .outputs = {"output", "indices"},
      .infer = [image_rank](const InferContext& call) { return infer(call, image_rank); },
      .gradient =
          [name](const GradientContext& c) {
            if (!c.gradients[0]) return Values{Value{}};
            return emit(name + "_backward", {c.gradients[0], c.outputs[1]},
                        pool_backward_attributes(c.inputs[0].shape(), c.as<PoolOptions>()));
          },
      .staged_inputs = {{0}},
      .staged_output = true,
      .samples_in = samples_of_input_0,
      .cpu = {.run = run, .any_layout_inputs = {0}, .any_layout_outputs = {0, 1}, .one_layout = true},
      .samples = [image_rank] { return samples(image_rank); },
  });
  registry.add<PoolBackwardAttributes>({
      .name = name + "_backward",
      .summary = "adds each window's gradient to the element of it that was chosen",
      .inputs = {"gradient", "indices"},
      .infer = [image_rank](const InferContext& call) { return infer_backward(call, image_rank); },
      .no_gradient = "not differentiable twice",
      .staged_output = true,
      .cpu = {.run = run_backward, .any_layout_inputs = {0, 1}, .any_layout_outputs = {0}, .one_layout = true},
      .index_inputs = {{1, [](const InferContext& call) { return element_count(call.as<PoolBackwardAttributes>().image); }, -1}},
      .samples = [image_rank] { return backward_samples(image_rank); },
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(max_pool) {
  add(registry, 2);
  add(registry, 3);
}
