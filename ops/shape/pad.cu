// Constant padding.

#include "frit/ops/cuda/embed.cuh"
#include "frit/ops/operator/registry.h"
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

/// Whether elements are added after the rows of the memory and nowhere else.
bool only_extends_rows(const Tensor& output, const Tensor& input, const PadAttributes& attributes) {
  if (output.rank() == 0) return false;
  const Dims order = elementwise::memory_order(output);
  bool only = input.permute(order).is_contiguous();
  for (int i = 0; i < order.rank(); ++i) {
    const int axis = static_cast<int>(order[i]);
    only = only && attributes.before[axis] == 0 && (attributes.after[axis] == 0 || i == order.rank() - 1);
  }
  return only;
}

/// Some more channels for every pixel, say; false for rows that are no vectors.
bool extend_short_rows(const KernelContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  const Tensor &output = call.outputs[0], &input = call.inputs[0];
  if (output.elements() == 0 || !only_extends_rows(output, input, attributes)) return false;
  const auto inner = static_cast<int>(elementwise::memory_order(output)[output.rank() - 1]);
  const std::int64_t row = output.shape()[inner], given = input.shape()[inner], rows = output.elements() / row;
  return dispatch_all(output.dtype(), [&]<class T>() {
    constexpr int width = elementwise::width_for<T>;
    if (given == row || (row != width && row != width / 2) || !elementwise::fits_vectors(output, width)) return false;
    const auto launch = [&]<class From>() {
      const auto kernel = row == width ? extend_rows<width, width, T, From> : extend_rows<width, width / 2, T, From>;
      const std::int64_t block_rows = vectors_at_once * cuda::default_threads * width / row;
      const dim3 blocks(static_cast<unsigned>((rows + block_rows - 1) / block_rows)), threads(cuda::default_threads);
      cuda::launch(kernel, {blocks, threads}, call.stream, output.data<T>(), input.data<From>(), convert<T>(attributes.value),
                   static_cast<int>(given), rows);
    };
    if constexpr (is_half_type<T>) {
      if (input.dtype() == DType::f32) {
        launch.template operator()<float>();
        return true;
      }
    }
    launch.template operator()<T>();
    return true;
  });
}

void run_cuda_pad(const KernelContext& call) {
  if (extend_short_rows(call)) return;
  const auto& attributes = call.as<PadAttributes>();
  const Dims step = Dims::filled(call.outputs[0].rank(), 1);
  embed(call.stream, call.outputs[0], call.inputs[0], attributes.before, step, attributes.value);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(pad) {
  registry.add_cuda("pad", {.run = run_cuda_pad, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
