#pragma once

#include <array>
#include <span>
#include <utility>

#include "frit/core/convert.h"
#include "frit/core/cuda/divisor.h"
#include "frit/core/cuda/launch.h"
#include "frit/core/cuda/vector.h"
#include "frit/core/strided_loop.h"
#include "frit/core/tensor.h"

namespace frit::ops {
namespace elementwise {

/// How the elements of an operand are found from their number in the output.
enum class Access : std::uint8_t {
  vector,    ///< side by side, and fit for accesses of a whole vector
  dense,     ///< side by side
  repeated,  ///< one element for all
  indexed,   ///< by strides
};

/// Elements of one launch with indexed operands, so that numbers of elements fit 32 bits.
inline constexpr std::int64_t most_indexed_elements = std::int64_t{1} << 30;

/// Where the operands of a call lie, in the order of the output's memory.
template <int operands>
struct OperandPlan {
  Access access[operands];
  bool any_indexed = false;
  bool output_vector;
  int rank = 0;
  Divisor sizes[Dims::max_rank];
  std::int64_t strides[Dims::max_rank][operands];

  /// `width`: elements of a vector.
  OperandPlan(const Tensor& output, const std::array<Tensor, operands>& inputs, int width) : output_vector(aligned(output, width)) {
    std::array<Strides, operands> walked;
    for (std::size_t k = 0; k < operands; ++k) {
      access[k] = access_of(inputs[k], width);
      any_indexed = any_indexed || access[k] == Access::indexed;
      walked[k] = inputs[k].strides();
    }
    if (!any_indexed || output.elements() > most_indexed_elements) return;
    Shape shape = output.shape();
    collapse_axes(shape, walked);
    rank = shape.rank();
    for (int axis = 0; axis < rank; ++axis) {
      sizes[axis] = Divisor(shape[axis]);
      for (std::size_t k = 0; k < operands; ++k) strides[axis][k] = walked[k][axis];
    }
  }

  /// Offsets of elements first ... first + width - 1.
  template <int width>
  __device__ void find(std::int64_t first, std::int64_t (&offsets)[width][operands]) const {
    std::uint32_t rest[width];
#pragma unroll
    for (int v = 0; v < width; ++v) {
      rest[v] = static_cast<std::uint32_t>(first) + v;
#pragma unroll
      for (int k = 0; k < operands; ++k) offsets[v][k] = 0;
    }
#pragma unroll 1
    for (int axis = rank - 1; axis >= 0; --axis) {
      const Divisor size = sizes[axis];
#pragma unroll
      for (int v = 0; v < width; ++v) {
        const std::uint32_t quotient = axis == 0 ? 0 : size.quotient(rest[v]);
        const std::uint32_t place = rest[v] - quotient * size.divisor;
        rest[v] = quotient;
#pragma unroll
        for (int k = 0; k < operands; ++k) offsets[v][k] += place * strides[axis][k];
      }
    }
  }

 private:
  static bool aligned(const Tensor& tensor, int width) {
    return reinterpret_cast<std::uintptr_t>(tensor.raw()) % (static_cast<std::size_t>(width) * size_of(tensor.dtype())) == 0;
  }

  static Access access_of(const Tensor& input, int width) {
    if (input.is_contiguous()) return aligned(input, width) ? Access::vector : Access::dense;
    bool repeated = true;
    for (int axis = 0; axis < input.rank(); ++axis) repeated = repeated && (input.strides()[axis] == 0 || input.shape()[axis] == 1);
    return repeated ? Access::repeated : Access::indexed;
  }
};

/// `width` elements of every operand, from element `first` on; `count` of them exist.
template <int width, int operands>
struct Run {
  const OperandPlan<operands>& plan;
  std::int64_t first;
  int count;
  std::int64_t offsets[width][operands];

  __device__ Run(const OperandPlan<operands>& operand_plan, std::int64_t first_element, std::int64_t elements)
      : plan(operand_plan), first(first_element), count(static_cast<int>(std::min<std::int64_t>(width, elements - first_element))) {
    if (plan.any_indexed) plan.find(first, offsets);
  }

  template <int k, class T>
  __device__ cuda::Vector<T, width> load(const T* data) const {
    using Elements = cuda::Vector<T, width>;
    const Access access = plan.access[k];
    if (access == Access::vector && count == width) return *reinterpret_cast<const Elements*>(data + first);
    Elements elements{};
    if (access == Access::repeated) {
      const T element = *data;
#pragma unroll
      for (int v = 0; v < width; ++v) elements[v] = element;
    } else {
#pragma unroll
      for (int v = 0; v < width; ++v) {
        if (v < count) elements[v] = data[access == Access::indexed ? offsets[v][k] : first + v];
      }
    }
    return elements;
  }

  template <class T>
  __device__ void store(T* data, const cuda::Vector<T, width>& elements) const {
    if (plan.output_vector && count == width) {
      *reinterpret_cast<cuda::Vector<T, width>*>(data + first) = elements;
    } else {
#pragma unroll
      for (int v = 0; v < width; ++v) {
        if (v < count) data[first + v] = elements[v];
      }
    }
  }
};

/// Halves are computed with as float32.
template <class T>
__device__ auto computed(T value) {
  if constexpr (is_half_type<T>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <class Out, int width, class Function, class... In>
__device__ cuda::Vector<Out, width> apply(const Function& function, const cuda::Vector<In, width>&... operands) {
  cuda::Vector<Out, width> results;
#pragma unroll
  for (int v = 0; v < width; ++v) results[v] = convert<Out>(function(computed(operands[v])...));
  return results;
}

template <int width, class Out, class Function, class... In, std::size_t... I>
__device__ void map_run(const Run<width, sizeof...(In)>& run, std::index_sequence<I...>, const Function& function, Out* output,
                        const In*... inputs) {
  run.store(output, apply<Out, width>(function, run.template load<I>(inputs)...));
}

/// A thread takes `width` neighbouring elements at a time: it reads them of every operand, then writes the results, so that the output may
/// lie on an input. Each input is read once, in 16-byte accesses where its elements lie side by side and aligned. Deterministic.
template <int width, class Out, class Function, class... In>
__global__ void map_kernel(Out* output, const __grid_constant__ OperandPlan<sizeof...(In)> plan, std::int64_t count, Function function,
                           const In*... inputs) {
  for (std::int64_t first = cuda::first_item() * width; first < count; first += cuda::item_step() * width) {
    map_run(Run<width, sizeof...(In)>(plan, first, count), std::index_sequence_for<In...>{}, function, output, inputs...);
  }
}

/// The tensor with its axes in the order of the output's memory.
inline Tensor in_order_of(const Tensor& output, const Tensor& tensor) {
  if (output.is_contiguous()) return tensor;
  Dims axes{0};
  for (int axis = 2; axis < output.rank(); ++axis) axes.push_back(axis);
  axes.push_back(1);
  return tensor.permute(axes);
}

/// Output and inputs are of one shape, and the output is contiguous.
template <class Out, class... In, class Function, std::size_t... I>
void map(cudaStream_t stream, const Tensor& output, const std::array<Tensor, sizeof...(In)>& inputs, const Function& function,
         std::index_sequence<I...> sequence) {
  if (output.elements() == 0) return;
  constexpr int width = std::min(16 / static_cast<int>(std::max({sizeof(Out), sizeof(In)...})), 8);
  const OperandPlan<sizeof...(In)> plan(output, inputs, width);
  const std::int64_t count = output.elements();
  if (plan.any_indexed && count > most_indexed_elements) {
    int axis = 0;
    while (output.shape()[axis] == 1) ++axis;
    const std::int64_t size = output.shape()[axis];
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, size / 2}, std::pair{size / 2, size}}) {
      map<Out, In...>(stream, output.slice(axis, begin, end), {inputs[I].slice(axis, begin, end)...}, function, sequence);
    }
    return;
  }
  cuda::launch(map_kernel<width, Out, Function, In...>, cuda::loop_shape((count + width - 1) / width), stream, output.data<Out>(), plan,
               count, function, inputs[I].template data<In>()...);
}

}  // namespace elementwise

/// output[i] = function(inputs[0][i], inputs[1][i], ...), on the stream, with the C++ types of the elements as template arguments; halves
/// reach the function as float. The output is contiguous or channels-last and may lie exactly on an input; the inputs have any strides and
/// broadcast to the output's shape. Inputs beyond In... are not looked at.
template <class Out, class... In, class Function>
void map_elements(cudaStream_t stream, const Tensor& output, std::span<const Tensor> inputs, const Function& function) {
  FRIT_CHECK(inputs.size() >= sizeof...(In) && (output.is_contiguous() || output.is_contiguous(Layout::channels_last)));
  std::array<Tensor, sizeof...(In)> operands;
  for (std::size_t k = 0; k < operands.size(); ++k) operands[k] = elementwise::in_order_of(output, inputs[k].expand(output.shape()));
  elementwise::map<Out, In...>(stream, elementwise::in_order_of(output, output), operands, function, std::index_sequence_for<In...>{});
}

}  // namespace frit::ops
