// Elements that an index names on each line along an axis, taken from there or put there.

#include "frit/core/convert.h"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/take_along_axis.h"

namespace frit::ops {
namespace {

/// One thread a line. Reads its index and one element. An index outside the line, for which the CPU throws, gives NaN (an integer: 0).
/// Deterministic.
template <class T>
__global__ void take_elements(T* y, const T* x, const std::int64_t* indices, cuda::StridedIndex<2> lines, std::int64_t axis_stride,
                              std::int64_t axis_size, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    std::int64_t offsets[2];
    lines.offsets(i, offsets);
    const std::int64_t index = indices[offsets[1]];
    const bool inside = index >= 0 && index < axis_size;
    y[i] = inside ? x[offsets[0] + index * axis_stride] : convert<T>(std::numeric_limits<float>::quiet_NaN());
  }
}

void take_kernel(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &indices = call.inputs[1], &output = call.outputs[0];
  const auto& attributes = call.as<AxisReductionAttributes>();
  if (output.elements() == 0) return;
  const int axis = normalize_axis(attributes.axis, input.rank(), "take_along_axis");
  Shape shape = input.shape();
  Strides line_strides = input.strides(), index_strides = indices.strides();
  shape.erase(axis);
  line_strides.erase(axis);
  if (attributes.keep_dims) index_strides.erase(axis);
  dispatch_all(input.dtype(), [&]<class T>() {
    cuda::launch(take_elements<T>, cuda::loop_shape(output.elements()), call.stream, output.data<T>(), input.data<T>(),
                 indices.data<std::int64_t>(), cuda::StridedIndex<2>(shape, {line_strides, index_strides}), input.strides()[axis],
                 input.shape()[axis], output.elements());
  });
}

/// An index outside the line, for which the CPU throws, leaves zeros.
template <class T>
struct Put {
  T* output;
  const T* values;              // (lines)
  const std::int64_t* indices;  // (lines)
  NoSource<T> source = {};

  struct Map {
    std::int64_t index;
    T value;
    template <class Raw>
    __device__ T operator()(const Raw&, int, std::int64_t position) const {
      return position == index ? value : T{};
    }
  };
  __device__ Map map(const Line& line) const { return {indices[line.result], values[line.result]}; }
};

/// The same along what is innermost in memory, where lines are whole vectors, one to a thread.
template <class T>
__global__ void put_in_vectors(T* output, const T* values, const std::int64_t* indices, cuda::Divisor line_vectors, std::int64_t count) {
  constexpr int width = cuda::vector_width<T>;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const auto number = static_cast<std::uint32_t>(i), line = line_vectors.quotient(number);
    const std::int64_t place = indices[line] - std::int64_t{width} * line_vectors.remainder(number, line);
    const T value = place >= 0 && place < width ? values[line] : T{};
    cuda::WideVector<T> elements;
#pragma unroll
    for (int k = 0; k < width; ++k) elements[k] = k == place ? value : T{};
    cuda::store_vector(output + i * width, elements);
  }
}

/// Whether that kernel takes a call.
template <class T>
bool in_whole_vectors(const Tensor& output, int axis) {
  const std::int64_t vectors = output.elements() / cuda::vector_width<T>;
  return output.strides()[axis] == 1 && output.dim(axis) % cuda::vector_width<T> == 0 && cuda::aligned_for_vectors(output.raw()) &&
         vectors <= INT32_MAX;
}

void put_kernel(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const int axis = normalize_axis(call.as<PutAttributes>().axis, output.rank(), "put_along_axis");
  const Lines lines(output, {axis});
  dispatch_all(output.dtype(), [&]<class T>() {
    if (output.elements() > 0 && in_whole_vectors<T>(output, axis)) {
      const std::int64_t of_line = output.dim(axis) / cuda::vector_width<T>, count = lines.results() * of_line;
      return cuda::launch(put_in_vectors<T>, cuda::loop_shape(count), call.stream, output.data<T>(), call.inputs[0].data<T>(),
                          call.inputs[1].data<std::int64_t>(), cuda::Divisor(of_line), count);
    }
    visit_lines(call.stream, Put<T>{output.data<T>(), call.inputs[0].data<T>(), call.inputs[1].data<std::int64_t>()}, lines);
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(take_along_axis) {
  registry.add_cuda("take_along_axis", {.run = take_kernel, .strided = true, .halves = true, .any_layout_inputs = {0, 1}});
  registry.add_cuda("put_along_axis", {.run = put_kernel, .halves = true, .any_layout_outputs = {0}});
}
