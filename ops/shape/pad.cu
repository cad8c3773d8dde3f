// Padding.

#include <optional>

#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/padded_axes.h"
#include "frit/ops/shape/shape_attributes.h"

namespace frit::ops {
namespace {

/// Vectors that a thread of extend_rows writes.
constexpr int vectors_at_once = 4;

/// Rows of `row` elements, a vector or half of one, which begin with `given` elements of the input and end with `value`. What a thread
/// writes is all on its way at once, in vectors. Reads the input once. Deterministic.
template <int width, int row, class T, class From>
__global__ void __launch_bounds__(cuda::default_threads)
    extend_rows(T* output, const From* __restrict__ input, T value, int given, std::int64_t rows) {
  const auto first_row = [](int u) {
    const std::int64_t vector = (static_cast<std::int64_t>(blockIdx.x) * vectors_at_once + u) * cuda::default_threads + threadIdx.x;
    return vector * (width / row);
  };
  From elements[vectors_at_once][width];
#pragma unroll
  for (int u = 0; u < vectors_at_once; ++u) {
#pragma unroll
    for (int v = 0; v < width; ++v) {
      const std::int64_t r = first_row(u) + v / row;
      const int place = v % row;
      elements[u][v] = place < row - 1 && place < given && r < rows ? input[r * given + place] : From(0);
    }
  }
#pragma unroll
  for (int u = 0; u < vectors_at_once; ++u) {
    cuda::Vector<T, width> extended;
#pragma unroll
    for (int v = 0; v < width; ++v) extended[v] = v % row < given ? convert<T>(elements[u][v]) : value;
    elementwise::store(output + first_row(u) * row, extended, (rows - first_row(u)) * row, true);
  }
}

/// The axis of the rows of the memory if a constant is added after these and nowhere else.
std::optional<int> lengthened_axis(const Tensor& output, const Tensor& input, const PadAttributes& attributes) {
  if (output.elements() == 0 || output.rank() == 0 || attributes.repeats()) return std::nullopt;
  const Dims order = memory_order(output);
  if (!input.permute(order).is_contiguous()) return std::nullopt;
  for (int i = 0; i < order.rank(); ++i) {
    const int axis = static_cast<int>(order[i]);
    const bool grows = attributes.after[axis] > 0;
    if (attributes.before[axis] > 0 || grows != (i == order.rank() - 1)) return std::nullopt;
  }
  return static_cast<int>(order[order.rank() - 1]);
}

int vector_elements(const Tensor& tensor) { return std::min(8, 16 / static_cast<int>(size_of(tensor.dtype()))); }

/// Some more channels for every pixel, say; none for rows that are no vectors, or halves of one.
std::optional<int> short_rows_axis(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const std::optional<int> axis = lengthened_axis(output, call.inputs[0], call.as<PadAttributes>());
  const std::int64_t width = vector_elements(output);
  return axis && (output.shape()[*axis] == width || output.shape()[*axis] == width / 2) ? axis : std::nullopt;
}

void extend_short_rows(const KernelContext& call, int axis) {
  const Tensor &output = call.outputs[0], &input = call.inputs[0];
  const std::int64_t row = output.shape()[axis], given = input.shape()[axis], rows = output.elements() / row;
  dispatch_all(output.dtype(), [&]<class T>() {
    constexpr int width = elementwise::width_for<T>;
    const auto launch = [&]<class From>() {
      const auto kernel = row == width ? extend_rows<width, width, T, From> : extend_rows<width, width / 2, T, From>;
      const std::int64_t block_rows = vectors_at_once * cuda::default_threads * width / row;
      const dim3 blocks(static_cast<unsigned>((rows + block_rows - 1) / block_rows)), threads(cuda::default_threads);
      cuda::launch(kernel, {blocks, threads}, call.stream, output.data<T>(), input.data<From>(), convert<T>(call.as<PadAttributes>().value),
                   static_cast<int>(given), rows);
    };
    if constexpr (is_half_type<T>) {
      if (input.dtype() == DType::f32) return launch.template operator()<float>();
    }
    launch.template operator()<T>();
  });
}

PaddedAxes axes_of(const KernelContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  const Tensor &output = call.outputs[0], &input = call.inputs[0];
  if (attributes.repeats()) return repeated_margins(output, input, attributes.before, attributes.mode, /*backward=*/false);
  return constant_margins(output, input, attributes.before, Dims::filled(output.rank(), 1));
}

PaddedAxes backward_axes_of(const KernelContext& call) {
  const auto& attributes = call.as<PadBackwardAttributes>();
  return repeated_margins(call.outputs[0], call.inputs[0], attributes.before, attributes.mode, /*backward=*/true);
}

void run_cuda_pad(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const std::optional<int> rows = short_rows_axis(call);
  if (rows && elementwise::fits_vectors(output, vector_elements(output))) return extend_short_rows(call, *rows);
  pad_on_gpu(call.stream, output, call.inputs[0], axes_of(call), call.as<PadAttributes>().value);
}

std::string describe(const KernelContext& call) {
  return short_rows_axis(call) ? "short rows, several by a thread" : describe_padding(call.outputs[0], axes_of(call));
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(pad) {
  Kernel kernel = padding_kernel(axes_of);
  kernel.run = run_cuda_pad;
  kernel.describe = describe;
  registry.add_cuda("pad", std::move(kernel));
  registry.add_cuda("pad_backward", padding_kernel(backward_axes_of));
}
