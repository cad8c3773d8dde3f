#pragma once

#include "frit/ops/cuda/elementwise.cuh"

namespace frit::ops {
namespace embedding {

/// Where the input's elements lie in the output. The axes are those of the output's memory, the innermost first; axes that can be traversed
/// as one are merged.
struct EmbedPlan {
  int rank = 0;
  cuda::Divisor sizes[Dims::max_rank];  ///< of the output
  cuda::Divisor steps[Dims::max_rank];  ///< in the output, from one element of the input to the next
  // What a scalar has is set.
  std::int64_t begins[Dims::max_rank] = {0};   ///< of the first element
  std::int64_t spans[Dims::max_rank] = {1};    ///< from the first element to past the last
  std::int64_t strides[Dims::max_rank] = {0};  ///< of the input

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

  /// Whether neighbours along the innermost axis are neighbours in the input.
  bool rows_are_runs() const { return strides[0] == 1 && steps[0].value<std::int64_t>() == 1; }

  /// The offsets in the input of what lies at first ... first + width - 1 of the output; -1 for the constant. Neighbours mostly share the
  /// indices of all axes but the innermost, which are recomputed only where a row ends. Says whether a row of the input holds them all.
  template <class Integer, int width>
  __device__ bool find(Integer first, std::int64_t (&offsets)[width]) const {
    Integer row = sizes[0].quotient(first), place = sizes[0].remainder(first, row);
    const Integer last_of_row = place + width - 1;
    std::int64_t start = find_row(row);
#pragma unroll
    for (int v = 0; v < width; ++v) {
      if (v > 0 && place == sizes[0].template value<Integer>()) {
        place = 0;
        start = find_row(++row);
      }
      const std::int64_t offset = find_on_axis(0, place++);
      offsets[v] = start >= 0 && offset >= 0 ? start + offset : -1;
    }
    return last_of_row < sizes[0].template value<Integer>() && offsets[0] >= 0 && offsets[width - 1] >= 0;
  }

 private:
  /// Of the row's first element, were it in the input; -1 if no element of the row is.
  template <class Integer>
  __device__ std::int64_t find_row(Integer row) const {
    std::int64_t start = 0;
#pragma unroll 1
    for (int axis = 1; axis < rank; ++axis) {
      const Integer outer = sizes[axis].quotient(row);
      const std::int64_t offset = find_on_axis(axis, sizes[axis].remainder(row, outer));
      row = outer;
      start = start >= 0 && offset >= 0 ? start + offset : -1;
    }
    return start;
  }
  template <class Integer>
  __device__ std::int64_t find_on_axis(int axis, Integer place) const {
    const Integer distance = place - static_cast<Integer>(begins[axis]);  // wraps around in front of the first element
    const Integer index = steps[axis].quotient(distance);
    const bool inside = distance < static_cast<Integer>(spans[axis]) && steps[axis].remainder(distance, index) == 0;
    return inside ? static_cast<std::int64_t>(index) * strides[axis] : -1;
  }
};

/// A thread takes `width` neighbouring elements of the output at a time; it reads what of the input lies there and writes them at once.
/// Reads at once too where the input's rows hold `runs` of neighbours that fit vectors. Deterministic.
template <int width, class Integer, class T, class From>
__global__ void __launch_bounds__(cuda::default_threads)
    embed_kernel(T* output, const From* __restrict__ input, const __grid_constant__ EmbedPlan plan, T value, std::int64_t count,
                 bool vector, bool runs) {
  for (std::int64_t first = cuda::first_item() * width; first < count; first += cuda::item_step() * width) {
    std::int64_t offsets[width];
    const bool in_one_row = plan.find(static_cast<Integer>(first), offsets);
    cuda::Vector<T, width> elements;
    if (runs && in_one_row && offsets[0] % width == 0) {
      const auto row = *reinterpret_cast<const cuda::Vector<From, width>*>(input + offsets[0]);
#pragma unroll
      for (int v = 0; v < width; ++v) elements[v] = convert<T>(row[v]);
    } else {
#pragma unroll
      for (int v = 0; v < width; ++v) elements[v] = offsets[v] >= 0 && first + v < count ? convert<T>(input[offsets[v]]) : value;
    }
    elementwise::store(output + first, elements, count - first, vector);
  }
}

}  // namespace embedding

/// output[before + i * step] = input[i] for every index i, and `value` elsewhere. The output is contiguous or channels-last; the input has
/// any strides, and its dtype or the other of float32 and a half.
inline void embed(cudaStream_t stream, const Tensor& output, const Tensor& input, const Dims& before, const Dims& step, double value) {
  const std::int64_t count = output.elements();
  if (count == 0) return;
  const embedding::EmbedPlan plan(output, input, before, step);
  dispatch_all(output.dtype(), [&]<class T>() {
    constexpr int width = elementwise::width_for<T>;
    dispatch_stored_as<T>(input.dtype(), [&]<class From>() {
      const bool narrow = count <= std::int64_t{1} << 30;
      const auto kernel =
          narrow ? embedding::embed_kernel<width, std::uint32_t, T, From> : embedding::embed_kernel<width, std::uint64_t, T, From>;
      const bool runs = plan.rows_are_runs() && elementwise::fits_vectors(input, width);
      cuda::launch(kernel, cuda::loop_shape((count + width - 1) / width), stream, output.data<T>(), input.data<From>(), plan,
                   convert<T>(value), count, elementwise::fits_vectors(output, width), runs);
    });
  });
}

}  // namespace frit::ops
