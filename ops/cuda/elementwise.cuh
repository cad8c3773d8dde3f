#pragma once

#include <array>
#include <span>
#include <utility>

#include "frit/core/convert.h"
#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/core/strided_loop.h"
#include "frit/ops/operator/memory_order.h"

namespace frit::ops {

/// Calls body.operator()<From>() for the type of what a kernel stores as T: T itself, and float32 and the halves for each other.
template <class T, class Body>
void dispatch_stored_as(DType from, const Body& body) {
  if constexpr (is_half_type<T>) {
    if (from == DType::f32) return body.template operator()<float>();
  } else if constexpr (std::is_same_v<T, float>) {
    if (from == DType::f16) return body.template operator()<Half>();
    if (from == DType::bf16) return body.template operator()<BFloat16>();
  }
  body.template operator()<T>();
}

namespace elementwise {

/// Elements of a vector access for the largest of some element types.
template <class... T>
inline constexpr int width_for = std::min(16 / static_cast<int>(std::max({sizeof(T)...})), 8);

/// Whether vectors of `width` elements may begin at the first element.
inline bool fits_vectors(const Tensor& tensor, int width) {
  return reinterpret_cast<std::uintptr_t>(tensor.raw()) % (static_cast<std::size_t>(width) * size_of(tensor.dtype())) == 0;
}

/// The first `count` elements, zeros after them; read at once if `vector`, which says that the memory fits vectors.
template <int width, class T>
__device__ cuda::Vector<T, width> load(const T* memory, std::int64_t count, bool vector) {
  if (vector && count >= width) return *reinterpret_cast<const cuda::Vector<T, width>*>(memory);
  cuda::Vector<T, width> elements{};
#pragma unroll
  for (int v = 0; v < width; ++v) {
    if (v < count) elements[v] = memory[v];
  }
  return elements;
}

template <class T, int width>
__device__ void store(T* memory, const cuda::Vector<T, width>& elements, std::int64_t count, bool vector) {
  if (vector && count >= width) {
    cuda::store_vector(memory, elements);
    return;
  }
#pragma unroll
  for (int v = 0; v < width; ++v) {
    if (v < count) memory[v] = elements[v];
  }
}

/// How an operand's elements are found from their numbers in the output.
enum class Access : std::uint8_t {
  vector,    ///< side by side, and fit for vectors
  dense,     ///< side by side
  repeated,  ///< one element for all
  indexed,   ///< by strides
};

/// Elements of one launch with indexed operands: their numbers fit 32 bits.
inline constexpr std::int64_t most_indexed_elements = std::int64_t{1} << 30;

/// Where the operands of a call lie. Output and inputs are of one shape, and the output is contiguous.
template <int operands>
struct OperandPlan {
  Access access[operands];
  bool any_indexed = false;
  bool output_vector;
  int rank = 0;
  cuda::Divisor sizes[Dims::max_rank];
  std::int64_t strides[Dims::max_rank][operands];

  OperandPlan() = default;
  OperandPlan(const Tensor& output, const std::array<Tensor, operands>& inputs, int width) : output_vector(fits_vectors(output, width)) {
    std::array<Strides, operands> merged;
    for (std::size_t k = 0; k < operands; ++k) {
      access[k] = access_of(inputs[k], width);
      any_indexed = any_indexed || access[k] == Access::indexed;
      merged[k] = inputs[k].strides();
    }
    if (!any_indexed || output.elements() > most_indexed_elements) return;
    Shape shape = output.shape();
    collapse_axes(shape, merged);
    rank = shape.rank();
    for (int axis = 0; axis < rank; ++axis) {
      sizes[axis] = cuda::Divisor(shape[axis]);
      for (std::size_t k = 0; k < operands; ++k) strides[axis][k] = merged[k][axis];
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
      const cuda::Divisor size = sizes[axis];
#pragma unroll
      for (int v = 0; v < width; ++v) {
        const std::uint32_t quotient = axis == 0 ? 0 : size.quotient(rest[v]);
        const std::uint32_t place = size.remainder(rest[v], quotient);
        rest[v] = quotient;
#pragma unroll
        for (int k = 0; k < operands; ++k) offsets[v][k] += place * strides[axis][k];
      }
    }
  }

 private:
  static Access access_of(const Tensor& input, int width) {
    if (input.is_contiguous()) return fits_vectors(input, width) ? Access::vector : Access::dense;
    bool repeated = true;
    for (int axis = 0; axis < input.rank(); ++axis) repeated = repeated && (input.strides()[axis] == 0 || input.shape()[axis] == 1);
    return repeated ? Access::repeated : Access::indexed;
  }
};

/// Elements first ... first + width - 1 of the operands, of which `count` exist.
template <int width, int operands>
struct Run {
  const OperandPlan<operands>& plan;
  std::int64_t first, count;
  std::int64_t offsets[width][operands];

  __device__ Run(const OperandPlan<operands>& operand_plan, std::int64_t first_element, std::int64_t elements)
      : plan(operand_plan), first(first_element), count(elements - first_element) {
    if (plan.any_indexed) plan.find(first, offsets);
  }

  template <int k, class T>
  __device__ cuda::Vector<T, width> load(const T* data) const {
    const Access access = plan.access[k];
    if (access <= Access::dense) return elementwise::load<width>(data + first, count, access == Access::vector);
    cuda::Vector<T, width> elements{};
#pragma unroll
    for (int v = 0; v < width; ++v) {
      if (v < count) elements[v] = data[access == Access::indexed ? offsets[v][k] : 0];
    }
    return elements;
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

template <class Out, int width, class Function, class... In, std::size_t... I>
__device__ void map_run(Out* output, const Run<width, sizeof...(In)>& run, const Function& function, std::index_sequence<I...>,
                        const In*... inputs) {
  store(output + run.first, apply<Out, width>(function, run.template load<I>(inputs)...), run.count, run.plan.output_vector);
}

/// A thread takes `width` neighbouring elements at a time: it reads them of every operand, then writes the results, so that the output may
/// lie on an input. Each input is read once, in 16-byte accesses where its elements lie side by side and aligned. Deterministic.
template <int width, class Out, class Function, class... In>
__global__ void map_kernel(Out* output, const __grid_constant__ OperandPlan<sizeof...(In)> plan, std::int64_t count, Function function,
                           const In*... inputs) {
  for (std::int64_t first = cuda::first_item() * width; first < count; first += cuda::item_step() * width) {
    map_run(output, Run<width, sizeof...(In)>(plan, first, count), function, std::index_sequence_for<In...>{}, inputs...);
  }
}

/// Output and inputs are of one shape, and the output is contiguous.
template <class Out, class... In, class Function, std::size_t... I>
void map_views(cudaStream_t stream, const Tensor& output, const std::array<Tensor, sizeof...(In)>& inputs, const Function& function,
               std::index_sequence<I...> sequence) {
  constexpr int width = width_for<Out, In...>;
  const std::int64_t count = output.elements();
  if (count == 0) return;
  const OperandPlan<sizeof...(In)> plan(output, inputs, width);
  if (!plan.any_indexed || count <= most_indexed_elements) {
    cuda::launch(map_kernel<width, Out, Function, In...>, cuda::loop_shape((count + width - 1) / width), stream, output.data<Out>(), plan,
                 count, function, inputs[I].template data<In>()...);
    return;
  }
  int axis = 0;
  while (output.shape()[axis] == 1) ++axis;
  const std::int64_t size = output.shape()[axis], half = size / 2;
  map_views<Out, In...>(stream, output.slice(axis, 0, half), {inputs[I].slice(axis, 0, half)...}, function, sequence);
  map_views<Out, In...>(stream, output.slice(axis, half, size), {inputs[I].slice(axis, half, size)...}, function, sequence);
}

}  // namespace elementwise

/// output[i] = function(inputs[0][i], inputs[1][i], ...), on the stream: `map_elements<Out, In...>(stream, output, inputs, function)` with
/// the C++ types of the elements; halves reach the function as float. The output is contiguous or channels-last and may lie exactly on an
/// input; the inputs have any strides and broadcast to the output's shape. Inputs beyond In... are not looked at.
template <class Out, class... In, class Function>
void map_elements(cudaStream_t stream, const Tensor& output, std::span<const Tensor> inputs, const Function& function) {
  FRIT_CHECK(inputs.size() >= sizeof...(In));
  const Dims axes = memory_order(output);
  std::array<Tensor, sizeof...(In)> operands;
  for (std::size_t k = 0; k < operands.size(); ++k) operands[k] = inputs[k].expand(output.shape()).permute(axes);
  elementwise::map_views<Out, In...>(stream, output.permute(axes), operands, function, std::index_sequence_for<In...>{});
}

}  // namespace frit::ops
