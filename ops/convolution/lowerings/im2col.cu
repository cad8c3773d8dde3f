// im2col, on CUDA devices.

#include "frit/ops/convolution/lowerings/subpixel.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

struct Im2colSizes {
  subpixel::Elements output;
  subpixel::Steps input;
  subpixel::Axes shift, image;  ///< image: of im2col's input, or of its output for the gradient
  subpixel::Sizes taps;
  cuda::Divisor widths;           ///< of a tap
  int in_channels, tap_channels;  ///< tap_channels: with those that are 0
  bool ones;
};

/// The steps of the output: from position to position, added to that from a sample's last position to the next sample's first, and of a
/// channel.
struct PositionSteps {
  std::int64_t position, sample, channel;

  explicit PositionSteps(const Tensor& output) {
    const std::int64_t channels = output.dim(1), positions = output.elements() / (output.dim(0) * channels);
    const bool channels_last = !output.is_contiguous();
    position = channels_last ? channels : 1;
    sample = channels_last ? 0 : (channels - 1) * positions;
    channel = channels_last ? 1 : positions;
  }
};

constexpr int rows_at_once = 4;

template <class To, class From, int width>
__device__ cuda::Vector<To, width> converted(const From (&elements)[width]) {
  cuda::Vector<To, width> result;
#pragma unroll
  for (int j = 0; j < width; ++j) result[j] = convert<To>(elements[j]);
  return result;
}

/// A thread keeps to a column, `width` channels of one tap, and takes that of the positions of `rows_at_once` rows at one place along the
/// innermost axis, so that little is left to work out for a position; it finds them all, then reads them all, then writes. With a width,
/// the input's channels lie side by side. Neighbours write neighbours: columns are threadIdx.x, places in a row blockIdx.z and
/// threadIdx.y, rows threadIdx.z. A position's inputs are read again for each position that has them as a tap, from the cache; at once
/// where the input has `vectors` of all channels of a tap. Deterministic.
template <class T, class From, int width, bool vectors, class Integer>
__global__ void __launch_bounds__(cuda::default_threads, sizeof(Integer) == 4 ? 5 : 1)
    gather_taps(T* __restrict__ output, const From* __restrict__ input, const __grid_constant__ Im2colSizes sizes, PositionSteps steps,
                Integer columns, Integer rows, Integer row_positions) {
  const Integer channel_step = width > 1 ? 1 : static_cast<Integer>(sizes.input.channel);
  const auto image_step = [&](int axis) { return static_cast<Integer>(sizes.input.image[axis]); };
  const Integer outer_size = sizes.output.image.values[0].template value<Integer>(),
                inner_size = sizes.output.image.values[1].template value<Integer>();
  for (Integer column = blockIdx.y * blockDim.x + threadIdx.x; column < columns; column += gridDim.y * blockDim.x) {
    Integer number = column, tap[3];
    const Integer first = split(number, sizes.widths) * width;
    const int given = sizes.in_channels - static_cast<int>(first);  // of the column's channels, those of the input
    From beyond[width];
#pragma unroll
    for (int j = 0; j < width; ++j) beyond[j] = From(sizes.ones && number == 0 && j == given ? 1.0f : 0.0f);
    split(number, sizes.taps.values, tap);
    int ahead[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) ahead[axis] = sizes.shift[axis] - static_cast<int>(tap[axis]);
    const auto inside = [&](int axis, Integer index) {
      return static_cast<unsigned>(static_cast<int>(index) + ahead[axis]) < static_cast<unsigned>(sizes.image[axis]);
    };
    // From the last rows to the first, which the convolution then finds in the cache.
    const Integer turns = (rows + rows_at_once - 1) / rows_at_once;
    for (Integer turn = blockIdx.x * blockDim.z + threadIdx.z; turn < turns; turn += gridDim.x * blockDim.z) {
      const Integer row = (turns - 1 - turn) * rows_at_once;
      Integer first_sample = row;
      const Integer first_inner = split(first_sample, sizes.output.image.values[1]);
      const Integer first_outer = split(first_sample, sizes.output.image.values[0]);
      for (Integer position = blockIdx.z * blockDim.y + threadIdx.y; position < row_positions; position += gridDim.z * blockDim.y) {
        Integer sample = first_sample, outer = first_outer, inner = first_inner, from[rows_at_once], to[rows_at_once];
        bool present[rows_at_once], outside;
        // The place in the input; it may lie in front of it, which unsigned sums bear.
        const auto find = [&] {
          outside = !inside(0, outer) || !inside(2, position);
          return first * channel_step + sample * static_cast<Integer>(sizes.input.sample) + (outer + ahead[0]) * image_step(0) +
                 (inner + ahead[1]) * image_step(1) + (position + ahead[2]) * image_step(2);
        };
        from[0] = find();
        to[0] = (row * row_positions + position) * static_cast<Integer>(steps.position) + sample * static_cast<Integer>(steps.sample) +
                column * width * static_cast<Integer>(steps.channel);
        present[0] = !outside && inside(1, inner);
#pragma unroll
        for (int u = 1; u < rows_at_once; ++u) {
          from[u] = from[u - 1] + image_step(1);
          to[u] = to[u - 1] + row_positions * static_cast<Integer>(steps.position);
          if (++inner == inner_size) {
            inner = 0;
            if (++outer == outer_size) {
              outer = 0;
              ++sample;
              to[u] += static_cast<Integer>(steps.sample);
            }
            from[u] = find();
          }
          present[u] = !outside && inside(1, inner) && row + u < rows;
        }
        From elements[rows_at_once][width];
#pragma unroll
        for (int u = 0; u < rows_at_once; ++u) {
          const From* const source = input + from[u];
          if constexpr (vectors) {
            cuda::Vector<From, width> column_elements{};
            if (present[u]) column_elements = *reinterpret_cast<const cuda::Vector<From, width>*>(source);
#pragma unroll
            for (int j = 0; j < width; ++j) elements[u][j] = column_elements[j];
          } else {
#pragma unroll
            for (int j = 0; j < width; ++j) {
              elements[u][j] = beyond[j];
              if (present[u] && j < given) elements[u][j] = source[static_cast<Integer>(j) * channel_step];
            }
          }
        }
#pragma unroll
        for (int u = 0; u < rows_at_once; ++u) {
          if (row + u < rows) *reinterpret_cast<cuda::Vector<T, width>*>(output + to[u]) = converted<T>(elements[u]);
        }
      }
    }
  }
}

/// Blocks that share columns out if channels are innermost, and otherwise have one each; several share a row where there are few.
cuda::LaunchShape shape_for(bool channels_last, std::int64_t columns, std::int64_t rows, std::int64_t row_positions) {
  constexpr std::int64_t enough_blocks = 132 * 8, most_blocks = 132 * 64, most_column_blocks = 65535, most_depth = 64;
  const auto ceil_divide = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t x = channels_last ? std::min<std::int64_t>(columns, cuda::default_threads) : 1;
  const std::int64_t turns = ceil_divide(row_positions, cuda::default_threads / x);  // that a row takes, all of them nearly full
  const std::int64_t y = ceil_divide(row_positions, turns), z = std::min(cuda::default_threads / (x * y), most_depth);
  const std::int64_t column_blocks = std::min(ceil_divide(columns, x), most_column_blocks);
  const std::int64_t row_groups = ceil_divide(rows, z * rows_at_once);
  // Of a block, of all alike.
  const std::int64_t block_turns = ceil_divide(row_groups, std::max<std::int64_t>(1, most_blocks / column_blocks));
  const std::int64_t row_blocks = ceil_divide(row_groups, block_turns), blocks = row_blocks * column_blocks;
  const std::int64_t sharing_blocks = std::clamp<std::int64_t>(enough_blocks / blocks, 1, turns);
  return {dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(column_blocks), static_cast<unsigned>(sharing_blocks)),
          dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z))};
}

/// A thread an element of the input's gradient, the sum over the positions that have it as a tap. Deterministic.
template <class T, class Integer>
__global__ void add_taps(T* output, const T* gradient, const __grid_constant__ Im2colSizes sizes, subpixel::Axes taps,
                         int gradient_channels, std::int64_t items) {
  for (std::int64_t item = cuda::first_item(); item < items; item += cuda::item_step()) {
    Integer rest = static_cast<Integer>(item), index[3];
    std::int64_t channel = sizes.output.find(rest, index);
    T sum = 0;
    for (int u0 = 0; u0 < taps[0]; ++u0) {
      for (int u1 = 0; u1 < taps[1]; ++u1) {
        for (int u2 = 0; u2 < taps[2]; ++u2, channel += sizes.tap_channels) {
          const int tap[3] = {u0, u1, u2};
          std::int64_t offset = rest * sizes.input.sample + channel * sizes.input.channel;
          bool inside = channel < gradient_channels;
#pragma unroll
          for (int axis = 0; axis < 3; ++axis) {
            const int position = static_cast<int>(index[axis]) - sizes.shift[axis] + tap[axis];
            inside = inside && position >= 0 && position < sizes.image[axis];
            offset += position * sizes.input.image[axis];
          }
          if (inside) sum += gradient[offset];
        }
      }
    }
    output[item] = sum;
  }
}

Im2colSizes sizes_of(const Tensor& output, int width, const Tensor& input, const Im2colAttributes& a, std::int64_t in_channels) {
  return {subpixel::Elements(output, width),
          subpixel::Steps(input),
          subpixel::Axes(a.shift, 0),
          subpixel::Axes(image_of(input.shape()), 1),
          subpixel::Sizes(a.taps),
          cuda::Divisor(std::max<std::int64_t>(1, a.channels / width)),
          static_cast<int>(in_channels),
          static_cast<int>(a.channels),
          a.ones};
}

/// From a tensor's first element to past its last.
std::int64_t span_of(const Tensor& tensor) {
  std::int64_t span = 1;
  for (int axis = 0; axis < tensor.rank(); ++axis) span += (tensor.shape()[axis] - 1) * tensor.strides()[axis];
  return span;
}

/// Whether at every pixel `width` channels from any multiple of that on are a vector.
bool holds_vectors(const Tensor& input, int width) {
  bool multiples = input.dim(1) % width == 0 && elementwise::fits_vectors(input, width);
  for (int axis = 0; axis < input.rank(); ++axis) multiples = multiples && (axis == 1 || input.strides()[axis] % width == 0);
  return multiples;
}

void run(const KernelContext& call) {
  const auto& a = call.as<Im2colAttributes>();
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  dispatch_floating_and_halves(output.dtype(), [&]<class T>() {
    const auto launch_from = [&]<class From, int width, bool vectors>() {
      const std::int64_t columns = output.dim(1) / width, row_positions = output.dim(-1);
      const std::int64_t rows = output.elements() / (output.dim(1) * row_positions);
      subpixel::dispatch_count(std::max(output.elements(), span_of(input)), [&]<class Integer>() {
        cuda::launch(gather_taps<T, From, width, vectors, Integer>, shape_for(!output.is_contiguous(), columns, rows, row_positions),
                     call.stream, output.data<T>(), input.data<From>(), sizes_of(output, width, input, a, input.dim(1)),
                     PositionSteps(output), static_cast<Integer>(columns), static_cast<Integer>(rows), static_cast<Integer>(row_positions));
      });
    };
    const auto launch = [&]<int width, bool vectors>() {
      if constexpr (is_half_type<T>) {
        if (input.dtype() == DType::f32) return launch_from.template operator()<float, width, vectors>();
      }
      launch_from.template operator()<T, width, vectors>();
    };
    constexpr int vector = std::min(4, cuda::vector_width<T>);
    const bool side_by_side = !output.is_contiguous() && (input.dim(1) == 1 || input.strides()[1] == 1);
    if (side_by_side && a.channels % vector == 0 && output.dim(1) % vector == 0 && cuda::aligned_for_vectors(output.raw())) {
      const bool whole = a.channels == input.dim(1) && holds_vectors(input, vector);
      whole ? launch.template operator()<vector, true>() : launch.template operator()<vector, false>();
    } else {
      launch.template operator()<1, false>();
    }
  });
}

void run_backward(const KernelContext& call) {
  const auto& a = call.as<Im2colBackwardAttributes>();
  const Tensor &gradient = call.inputs[0], &output = call.outputs[0];
  const std::int64_t items = output.elements();
  if (items == 0) return;
  dispatch_floating(output.dtype(), [&]<class T>() {
    subpixel::dispatch_count(items, [&]<class Integer>() {
      cuda::launch(add_taps<T, Integer>, cuda::loop_shape(items), call.stream, output.data<T>(), gradient.data<T>(),
                   sizes_of(output, 1, gradient, a.im2col, a.in_channels), subpixel::Axes(a.im2col.taps, 1),
                   static_cast<int>(gradient.dim(1)), items);
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(im2col) {
  registry.add_cuda("im2col", {.run = run, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  registry.add_cuda("im2col_backward", {.run = run_backward, .strided = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
