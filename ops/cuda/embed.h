#pragma once

#include "frit/ops/cuda/elementwise.h"

namespace frit::ops {
namespace embedding {

/// Where the input's elements lie in the output. The axes are those of the output's memory, the innermost first; axes that can be walked as
/// one are merged.
struct EmbedPlan {
  int rank = 0;
  cuda::Divisor sizes[Dims::max_rank];   ///< of the output
  cuda::Divisor steps[Dims::max_rank];   ///< in the output, from one element of the input to the next
  std::int64_t begins[Dims::max_rank];   ///< of the first element
  std::int64_t spans[Dims::max_rank];    ///< from the first element to behind the last
  std::int64_t strides[Dims::max_rank];  ///< of the input

  EmbedPlan(const Tensor& output, const Tensor& input, const Dims& before, const Dims& step) {
    const Dims order = elementwise::memory_order(output);
    std::int64_t inner = 1;  // size of the merged axes so far if the input fills them
    for (int i = order.rank() - 1; i >= 0; --i) {
      const int axis = static_cast<int>(order[i]);
      const std::int64_t size = output.shape()[axis], count = input.shape()[axis], stride = input.strides()[axis];
      if (size == 1 && count == 1) continue;
      const bool joins = inner > 1 && step[axis] == 1 && stride == strides[rank - 1] * inner;
      if (!joins) {
        inner = 1;
        strides[rank++] = stride;
      }
      sizes[rank - 1] = cuda::Divisor(size * inner);
      steps[rank - 1] = cuda::Divisor(std::min(step[axis], size));
      begins[rank - 1] = before[axis] * inner;
      spans[rank - 1] = count == 0 ? 0 : ((count - 1) * step[axis] + 1) * inner;
      inner = count == size ? size * inner : 1;
    }
  }

  /// The offsets in the input of what lies at first ... first + width - 1 of the output; -1 for the constant.
  template <class Integer, int width>
  __device__ void find(Integer first, std::int64_t (&offsets)[width]) const {
    Integer rest[width];
    bool inside[width];
#pragma unroll
    for (int v = 0; v < width; ++v) {
      rest[v] = first + v;
      inside[v] = true;
      offsets[v] = 0;
    }
#pragma unroll 1
    for (int axis = 0; axis < rank; ++axis) {
#pragma unroll
      for (int v = 0; v < width; ++v) {
        const Integer outer = sizes[axis].quotient(rest[v]);
        const std::int64_t place = static_cast<std::int64_t>(sizes[axis].remainder(rest[v], outer)) - begins[axis];
        const bool within = place >= 0 && place < spans[axis];
        const Integer distance = within ? static_cast<Integer>(place) : 0;
        const Integer index = steps[axis].quotient(distance);
        rest[v] = outer;
        inside[v] = inside[v] && within && steps[axis].remainder(distance, index) == 0;
        offsets[v] += static_cast<std::int64_t>(index) * strides[axis];
      }
    }
#pragma unroll
    for (int v = 0; v < width; ++v) offsets[v] = inside[v] ? offsets[v] : -1;
  }
};

/// A thread takes `width` neighbouring elements of the output at a time; it reads what of the input lies there, element by element, and
/// writes them at once. Deterministic.
template <int width, class Integer, class T>
__global__ void embed_kernel(T* output, const T* input, const __grid_constant__ EmbedPlan plan, T value, std::int64_t count, bool vector) {
  for (std::int64_t first = cuda::first_item() * width; first < count; first += cuda::item_step() * width) {
    std::int64_t offsets[width];
    plan.find(static_cast<Integer>(first), offsets);
    cuda::Vector<T, width> elements;
#pragma unroll
    for (int v = 0; v < width; ++v) elements[v] = offsets[v] >= 0 && first + v < count ? input[offsets[v]] : value;
    elementwise::store(output + first, elements, count - first, vector);
  }
}

}  // namespace embedding

/// output[before + i * step] = input[i] for every index i, and `value` elsewhere. The output is contiguous or channels-last; the input has
/// any strides, and its dtype.
inline void embed(cudaStream_t stream, const Tensor& output, const Tensor& input, const Dims& before, const Dims& step, double value) {
  const std::int64_t count = output.elements();
  if (count == 0) return;
  const embedding::EmbedPlan plan(output, input, before, step);
  dispatch_all(output.dtype(), [&]<class T>() {
    constexpr int width = elementwise::width_for<T>;
    const bool narrow = count <= std::int64_t{1} << 30;
    const auto kernel = narrow ? embedding::embed_kernel<width, std::uint32_t, T> : embedding::embed_kernel<width, std::uint64_t, T>;
    cuda::launch(kernel, cuda::loop_shape((count + width - 1) / width), stream, output.data<T>(), input.data<T>(), plan, convert<T>(value),
                 count, elementwise::fits_vectors(output, width));
  });
}

}  // namespace frit::ops
