// The gradients of clamp(max_pool2d(group_norm(input) * scale)).

#include <bit>

#include "frit/core/cuda/packed.cuh"
#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp_backward.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// What an element gets of the windows that it is the maximum of, of any kind.
template <class T, class Index>
struct ThroughWindows {
  WindowAxis height, width;
  const Index* argmax;  // (N, C, windows), as the other
  const T* more;
  std::int64_t channels;
  bool side_by_side;

  __device__ T operator()(T gradient, std::int64_t n, std::int64_t c, std::int64_t p) const {
    const auto pixel = static_cast<std::uint32_t>(p), row = width.images.quotient(pixel);
    const auto h = static_cast<std::int32_t>(row), w = static_cast<std::int32_t>(width.images.remainder(pixel, row));
    const std::int64_t plane = (n * channels + c) * height.output * width.output;
    const auto take = [&](std::int32_t o_row, std::int32_t o_column, std::int32_t kh, std::int32_t kw) {
      const std::int64_t window = plane + static_cast<std::int64_t>(o_row) * width.output + o_column;
      if (argmax[window] == static_cast<Index>(kh * width.kernel + kw)) gradient += more[window];
    };
    if (side_by_side) {
      const auto o_row = static_cast<std::int32_t>(height.strides.quotient(row));
      const auto o_column = static_cast<std::int32_t>(width.strides.quotient(static_cast<std::uint32_t>(w)));
      if (o_row < height.output && o_column < width.output) {
        take(o_row, o_column, h - o_row * height.kernel, w - o_column * width.kernel);
      }
      return gradient;
    }
    for (std::int32_t o_row = height.first_window(h); o_row <= height.last_window(h); ++o_row) {
      const std::int32_t kh = height.element(o_row, h);
      if (kh < 0) continue;
      for (std::int32_t o_column = width.first_window(w); o_column <= width.last_window(w); ++o_column) {
        const std::int32_t kw = width.element(o_column, w);
        if (kw >= 0) take(o_row, o_column, kh, kw);
      }
    }
    return gradient;
  }
};

/// The image in columns as high as a window, one after the other along the rows of windows; below those, columns without windows.
struct ColumnSizes {
  unsigned height, width, output_height, output_width;  // of the image; in windows
  unsigned columns;
  cuda::Divisor widths;

  ColumnSizes(const WindowAxis& h, const WindowAxis& w)
      : height(static_cast<unsigned>(h.image)),
        width(static_cast<unsigned>(w.image)),
        output_height(static_cast<unsigned>(h.output)),
        output_width(static_cast<unsigned>(w.output)),
        columns(static_cast<unsigned>((h.image + h.kernel - 1) / h.kernel) * width),
        widths(w.images) {}
};

/// A thread's columns in write_columns.
constexpr int thread_columns = 4;

/// The gradient of 16 bytes of channels in a column of the image, in the place of its elements; `first` is the number that the column's top
/// has in its window. Adds up x - reference.
template <class Stored, int kernel, class T = Computed<Stored>, int width = cuda::vector_width<Stored>>
__device__ void spread_column(cuda::Vector<Stored, width> (&x)[kernel], unsigned height, int first, const GradientRules<T>& rules,
                              std::int64_t slice, const cuda::Vector<T, width>& addend, const cuda::Vector<std::uint8_t, width>& numbers,
                              cuda::Vector<T, width>& sums) {
  if constexpr (is_half_type<Stored>) {
    // A word of two channels after the other, whose rules are read again, so that registers leave room for enough threads.
    using Words = cuda::Vector<std::uint32_t, 4>;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const RuleVector<T, 2> rule(rules, slice + 2 * w);
#pragma unroll
      for (unsigned k = 0; k < kernel; ++k) {
        if (k >= height) break;
        auto words = std::bit_cast<Words>(x[k]);
        const float2 pair = cuda::Packed<Stored>::widen(words[w]);
        const T low = rule.difference(0, pair.x), high = rule.difference(1, pair.y);
        sums[2 * w] += low, sums[2 * w + 1] += high;
        const int number = first + static_cast<int>(k) * kernel;
        words[w] = cuda::Packed<Stored>::narrow(rule.spread(0, low) + (numbers[2 * w] == number ? addend[2 * w] : T(0)),
                                                rule.spread(1, high) + (numbers[2 * w + 1] == number ? addend[2 * w + 1] : T(0)));
        x[k] = std::bit_cast<cuda::Vector<Stored, width>>(words);
      }
    }
  } else {
    const RuleVector<T, width> rule(rules, slice);
#pragma unroll
    for (unsigned k = 0; k < kernel; ++k) {
      if (k >= height) break;
#pragma unroll
      for (int j = 0; j < width; ++j) {
        const T difference = rule.difference(j, x[k][j]), spread = rule.spread(j, difference);
        sums[j] += difference;
        x[k][j] = numbers[j] - first == static_cast<int>(k) * kernel ? spread + addend[j] : spread;
      }
    }
  }
}

/// The input's gradient, channels-last, where windows lie side by side: a thread has 16 bytes of the pixels of a column, one column after
/// the other, and loads what belongs to their window once. Reads and writes each element once. Where wanted, `differences` gets the blocks'
/// sums of x - reference. Deterministic.
template <class Stored, int kernel>
__global__ void __launch_bounds__(cuda::default_threads, 4)
    write_columns(Stored* input_gradient /* or null */, Computed<Stored>* differences /* (N, blocks, C), or null */, const Stored* input,
                  GradientRules<Computed<Stored>> rules, ArgmaxGradients<Computed<Stored>, std::uint8_t> at_argmax, ColumnSizes sizes,
                  Planes planes) {
  using T = Computed<Stored>;
  constexpr int width = cuda::vector_width<Stored>;
  using Elements = cuda::Vector<Stored, width>;
  using Values = cuda::Vector<T, width>;
  using Numbers = cuda::Vector<std::uint8_t, width>;
  __shared__ Values shared[cuda::default_threads];
  const auto channels = static_cast<unsigned>(planes.channels), rows = blockDim.y;
  const unsigned c = threadIdx.x * width, windows = sizes.output_height * sizes.output_width, row_step = sizes.width * channels;
  // The last samples first: what their maxima get was written last, and is in the cache.
  for (std::int64_t n = planes.samples - 1 - blockIdx.y; n >= 0; n -= gridDim.y) {
    const Stored* const from = input + n * planes.pixels * channels;
    Stored* const to = input_gradient + n * planes.pixels * channels;
    const T* const more = at_argmax.more + n * windows * channels + c;
    const std::uint8_t* const argmax = at_argmax.argmax + n * windows * channels + c;
    Values sums{};
#pragma unroll 1
    for (unsigned u = 0; u < thread_columns; ++u) {
      const unsigned column = (blockIdx.x * thread_columns + u) * rows + threadIdx.y;
      if (column >= sizes.columns) break;
      const unsigned o_row = sizes.widths.quotient(column), w = sizes.widths.remainder(column, o_row);
      const unsigned o_column = w / kernel, h = o_row * kernel, place = (h * sizes.width + w) * channels + c;
      Elements x[kernel];
#pragma unroll
      for (unsigned k = 0; k < kernel; ++k) {
        if (h + k < sizes.height) x[k] = load_streamed<Elements>(from + (place + k * row_step));
      }
      const bool in_window = o_row < sizes.output_height && o_column < sizes.output_width;
      const unsigned window = in_window ? (o_row * sizes.output_width + o_column) * channels : 0;
      const Values addend = *reinterpret_cast<const Values*>(more + window);
      const Numbers numbers = *reinterpret_cast<const Numbers*>(argmax + window);
      const int first = in_window ? static_cast<int>(w - o_column * kernel) : kernel * kernel;  // the number of the column's top
      spread_column<Stored, kernel>(x, sizes.height - h, first, rules, n * channels + c, addend, numbers, sums);
      if (input_gradient == nullptr) continue;
#pragma unroll
      for (unsigned k = 0; k < kernel; ++k) {
        if (h + k < sizes.height) store_streamed(to + (place + k * row_step), x[k]);
      }
    }
    if (differences == nullptr) continue;
    const unsigned t = threadIdx.y * blockDim.x + threadIdx.x;
    shared[t] = sums;
    __syncthreads();
    const T* const values = reinterpret_cast<const T*>(shared);  // (rows, C)
    for (unsigned i = t; i < channels; i += blockDim.x * rows) {
      T total = 0;
      for (unsigned row = 0; row < rows; ++row) total += values[row * channels + i];
      differences[(n * gridDim.x + blockIdx.x) * channels + i] = total;
    }
    __syncthreads();
  }
}

/// Blocks of write_columns to a sample; 0 where it does not do.
template <class Stored>
std::int64_t column_blocks(const Planes& planes, const WindowAxis& height, const WindowAxis& width) {
  const bool usual = height.side_by_side() && width.side_by_side() && height.kernel == width.kernel && height.kernel >= 2 &&
                     height.kernel <= 4 && planes.channels % cuda::vector_width<Stored> == 0 &&
                     planes.channels / cuda::vector_width<Stored> <= cuda::default_threads;
  if (!usual || planes.channels == 0) return 0;
  const std::int64_t columns = static_cast<std::int64_t>(channel_vector_block<Stored>(planes.channels).y) * thread_columns;
  return (ColumnSizes(height, width).columns + columns - 1) / columns;
}

/// The parts of the scratch memory, in bytes.
struct Scratch {
  ScratchParts all;
  std::size_t partials, parts, rules, more, argmax, differences;

  template <class Stored>
  Scratch(const Planes& planes, const Geometry& geometry, Stored /* what the tensors hold */) {
    using T = Computed<Stored>;
    constexpr int vector = cuda::vector_width<Stored>;
    const std::int64_t slices = planes.samples * planes.channels, windows = slices * geometry.windows();
    const std::int64_t blocks = column_blocks<Stored>(planes, WindowAxis(geometry.pool, 1), WindowAxis(geometry.pool, 2));
    const std::int64_t chunks = std::max({blocks, ElementSplit(planes, false, vector).chunks, ElementSplit(planes, true, vector).chunks});
    partials = all.add(slices * WindowSplit::most_chunks(geometry.windows()), sizeof(ChannelSums<double>));
    parts = all.add(slices, sizeof(ChannelParts<4>));
    rules = all.add(1, GradientRules<T>::bytes(slices));
    more = all.add(windows, sizeof(T));
    argmax = all.add(blocks > 0 ? windows : 0, 1);
    differences = all.add(slices * chunks, sizeof(T));
  }
};

/// One call: where everything is, and the kernels in their order.
template <class Stored, class Index>
class Backward {
 public:
  using T = Computed<Stored>;

  explicit Backward(const KernelContext& context)
      : context_(context),
        planes_(input().shape()),
        geometry_(input().shape(), context.as<ChainAttributes>()),
        places_(input(), planes_),
        gradient_places_(context.outputs[0].defined() ? Places(context.outputs[0], planes_) : places_),
        height_(geometry_.pool, 1),
        width_(geometry_.pool, 2),
        scratch_(planes_, geometry_, Stored()),
        rules_(context.scratch.data() + scratch_.rules, planes_.samples * planes_.channels),
        input_(input().template data<Stored>()),
        input_gradient_(data_or_null<Stored>(context.outputs[0])) {
    if constexpr (std::is_same_v<Index, std::uint8_t>) {
      if (channels_in_vectors(planes_, places_, gradient_places_, input_, input_gradient_)) {
        column_blocks_ = column_blocks<Stored>(planes_, height_, width_);
      }
    }
  }

  void run() const {
    ChannelDifferences<T> differences;
    if (planes_.samples * planes_.channels > 0) {
      sum();
      const bool summed = context_.outputs[4].defined();
      if (input_gradient_ != nullptr || summed) write();
      if (summed) differences = {part<T>(scratch_.differences), rules_.by_difference, chunks()};
    }
    launch_sum_over_batch<Stored>(context_, part<ChannelParts<4>>(scratch_.parts), differences, planes_);
  }

 private:
  const Tensor& input() const { return context_.inputs[1]; }
  template <class Part>
  Part* part(std::size_t place) const {
    return scratch_part<Part>(context_, place);
  }
  std::int64_t chunks() const {
    return column_blocks_ > 0 ? column_blocks_ : ElementSplit(planes_, places_.channels_last(), cuda::vector_width<Stored>).chunks;
  }

  void sum() const {
    const auto call = pool_gradient_call<Stored, Index>(context_, planes_, geometry_, context_.as<ChainAttributes>().clamp(), 2);
    const ArgmaxGradients<T, Index> results{part<T>(scratch_.more), column_blocks_ > 0 ? part<Index>(scratch_.argmax) : nullptr};
    launch_window_sums({part<ChannelParts<4>>(scratch_.parts), rules_}, results, part<ChannelSums<double>>(scratch_.partials), call,
                       input().device().index, context_.stream);
  }

  void write() const {
    T* const differences = context_.outputs[4].defined() ? part<T>(scratch_.differences) : nullptr;
    const T* const more = part<T>(scratch_.more);
    if constexpr (std::is_same_v<Index, std::uint8_t>) {
      if (column_blocks_ > 0) {
        const auto kernel = height_.kernel == 2   ? write_columns<Stored, 2>
                            : height_.kernel == 3 ? write_columns<Stored, 3>
                                                  : write_columns<Stored, 4>;
        const dim3 grid(static_cast<unsigned>(column_blocks_), sample_blocks(planes_));
        cuda::launch(kernel, {grid, channel_vector_block<Stored>(planes_.channels)}, context_.stream, input_gradient_, differences, input_,
                     rules_, ArgmaxGradients<T, std::uint8_t>{part<T>(scratch_.more), part<std::uint8_t>(scratch_.argmax)},
                     ColumnSizes(height_, width_), planes_);
        return;
      }
    }
    const ThroughWindows<T, Index> through_windows{height_, width_,           context_.inputs[5].data<Index>(),
                                                   more,    planes_.channels, height_.side_by_side() && width_.side_by_side()};
    launch_write_elements(input_gradient_, differences, input_, rules_, through_windows, planes_, places_, gradient_places_,
                          context_.stream);
  }

  const KernelContext& context_;
  Planes planes_;
  Geometry geometry_;
  Places places_, gradient_places_;
  WindowAxis height_, width_;
  Scratch scratch_;
  GradientRules<T> rules_;
  const Stored* input_;
  Stored* input_gradient_;
  std::int64_t column_blocks_ = 0;  ///< 0: by elements
};

/// inputs (gradient, input, weight, bias, scale, argmax, mean, rstd, argmax_input)
/// outputs (input_gradient, weight_gradient, bias_gradient, scale_gradient, input_gradient_sum)
void run(const KernelContext& call) {
  dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class Stored>() {
    dispatch_argmax(call.inputs[5].dtype(), [&]<class Index>() { Backward<Stored, Index>(call).run(); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  const Planes planes(call.shape(1));
  const Geometry geometry(call.shape(1), call.as<ChainAttributes>());
  std::size_t bytes = 0;
  dispatch_floating_and_halves(call.inputs[1].dtype, [&]<class Stored>() { bytes = Scratch(planes, geometry, Stored()).all.bytes(); });
  return bytes;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(group_norm_scale_max_pool_clamp_backward) {
  using namespace frit::ops;
  registry.add_cuda("group_norm_scale_max_pool_clamp_backward",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
