// Margins around the axes of a tensor, and the way back.

#include <type_traits>

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/shape/padded_axes.h"

namespace frit::ops {
namespace {

/// The axes of a call, and how its elements are shared out.
struct PaddingPlan {
  PaddedAxes axes;
  cuda::Divisor unit, unit_vectors, sizes[Dims::max_rank];
  bool runs;                               ///< what elements of a row inside of its margins are made of lies side by side, as they do
  std::int64_t run_begin, run_end, shift;  ///< of these elements, and from one to what it is made of
  std::int64_t input_elements;             ///< from the first to past the last

  PaddingPlan(const Tensor& input, const PaddedAxes& given, int width)
      : axes(given),
        unit(axes.unit),
        unit_vectors(std::max<std::int64_t>(1, axes.unit / width)),
        runs(axes.unit_stride == 1 && axes.strides[0] == axes.unit && axes.axes[0].step == 1),
        run_begin(axes.inside_begin() * axes.unit),
        run_end(axes.inside_end() * axes.unit),
        shift(axes.inside_shift() * axes.unit),
        input_elements(1) {
    for (int axis = 0; axis < axes.rank; ++axis) sizes[axis] = cuda::Divisor(axes.size(axis));
    for (int axis = 0; axis < input.rank(); ++axis) input_elements += (input.shape()[axis] - 1) * input.strides()[axis];
  }

  /// Part k of what lies at a place of the innermost axis, or, from axis 1 on, in a row.
  template <bool backward, class Integer>
  __device__ auto find(int first_axis, std::make_unsigned_t<Integer> index, Integer k) const {
    return axes.find<backward>(first_axis, index, k, [&](int axis, auto& rest) {
      const auto whole = rest;
      rest = sizes[axis].quotient(whole);
      return sizes[axis].remainder(whole, rest);
    });
  }
};

/// What a run of neighbours is computed in: what is summed up is rounded once.
template <bool backward, class T, class From>
using Sum = std::conditional_t<backward, Computed<T>, From>;

/// `width` elements that lie side by side. Where no vector begins with them, what those around them hold is shifted into place.
template <int width, class T>
__device__ cuda::VectorWords<T, width> load_run(const T* input, std::int64_t offset, std::int64_t input_elements) {
  constexpr int bytes = width * static_cast<int>(sizeof(T));
  const auto misplaced = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(input + offset) % std::min(bytes, 16));
  if constexpr (bytes % 16 == 0) {
    constexpr int words = bytes / 4, next = cuda::vector_width<T>;
    const std::int64_t first = offset - misplaced / static_cast<unsigned>(sizeof(T));
    if (misplaced != 0 && first >= 0 && first + width + next <= input_elements) {
      const auto front = cuda::VectorWords<T, width>::load(input + first, true);
      const auto back = cuda::VectorWords<T, next>::load(input + first + width, true);
      std::uint32_t around[words + 4];
#pragma unroll
      for (int i = 0; i < words + 4; ++i) around[i] = i < words ? front.words[i < words ? i : 0] : back.words[i < words ? 0 : i - words];
#pragma unroll
      for (int i = 0; i < words + 2; ++i) around[i] = misplaced & 8 ? around[i + 2] : around[i];
#pragma unroll
      for (int i = 0; i < words + 1; ++i) around[i] = misplaced & 4 ? around[i + 1] : around[i];
      cuda::VectorWords<T, width> run;
#pragma unroll
      for (int i = 0; i < words; ++i) run.words[i] = __funnelshift_r(around[i], around[i + 1], misplaced % 4 * 8);
      return run;
    }
  }
  return cuda::VectorWords<T, width>::load(input + offset, misplaced == 0);
}

/// The sum of what load(k) gives for each part.
template <bool backward, int width, class T, class From, class Integer, class Load>
__device__ cuda::Vector<T, width> sum_parts(Integer parts, const Load& load) {
  using C = Sum<backward, T, From>;
  cuda::Vector<C, width> sums = converted<C, width>(load(Integer{0}));
  if constexpr (backward) {
#pragma unroll 1
    for (Integer k = 1; k < parts; ++k) {
      const auto next = load(k);
#pragma unroll
      for (int v = 0; v < width; ++v) sums[v] += convert<C>(next[v]);
    }
  }
  return converted<T, width>(sums);
}

/// A thread takes vectors of `width` elements that one unit holds, say of a pixel's channels, and of the input, too. Reads each part once,
/// writes each vector once. Deterministic.
template <bool backward, int width, class Integer, class T, class From>
__global__ void __launch_bounds__(cuda::default_threads)
    pad_units(T* output, const From* __restrict__ input, const __grid_constant__ PaddingPlan plan, T value, std::int64_t vectors) {
  using Index = std::make_unsigned_t<Integer>;
  for (std::int64_t vector = cuda::first_item(); vector < vectors; vector += cuda::item_step()) {
    const auto index = static_cast<Index>(vector);
    const Index position = plan.unit_vectors.quotient(index);
    const From* const from = input + static_cast<std::int64_t>(plan.unit_vectors.remainder(index, position)) * width;
    const auto parts = plan.find<backward, Integer>(0, position, 0);
    cuda::Vector<T, width> results;
    if (parts.count == 0) {
#pragma unroll
      for (int v = 0; v < width; ++v) results[v] = value;
    } else {
      results = sum_parts<backward, width, T, From>(parts.count, [&](Integer k) {
        const std::int64_t offset = k == 0 ? parts.offset : plan.find<backward, Integer>(0, position, k).offset;
        return cuda::VectorWords<From, width>::load(from + offset, true);
      });
    }
    cuda::store_elements(output + vector * width, results, true);
  }
}

/// Elements first ... first + width - 1 of the output, one by one.
template <bool backward, int width, class Integer, class T, class From>
__device__ cuda::Vector<T, width> pad_one_by_one(const From* __restrict__ input, const PaddingPlan& plan, T value, std::int64_t first,
                                                 std::int64_t count) {
  using Index = std::make_unsigned_t<Integer>;
  Index position = plan.unit.quotient(static_cast<Index>(first));
  Index channel = plan.unit.remainder(static_cast<Index>(first), position);
  Index row = plan.sizes[0].quotient(position), place = plan.sizes[0].remainder(position, row);
  auto of_row = plan.find<backward, Integer>(1, row, 0);
  std::int64_t offsets[width];
  bool summed = false;
#pragma unroll
  for (int v = 0; v < width; ++v) {
    if (v > 0 && ++channel == plan.unit.value<Index>()) {
      channel = 0;
      if (++place == plan.sizes[0].value<Index>()) {
        place = 0;
        of_row = plan.find<backward, Integer>(1, ++row, 0);
      }
    }
    auto parts = of_row;
    Integer first_part = 0;
    plan.axes.add_axis<backward>(parts, 0, static_cast<Integer>(place), first_part);
    offsets[v] = first + v < count && parts.count > 0 ? parts.offset + static_cast<std::int64_t>(channel) * plan.axes.unit_stride : -1;
    summed = summed || (offsets[v] >= 0 && parts.count > 1);
  }
  using C = Sum<backward, T, From>;
  cuda::Vector<T, width> results;
#pragma unroll
  for (int v = 0; v < width; ++v) results[v] = offsets[v] >= 0 ? convert<T>(convert<C>(input[offsets[v]])) : value;
  if constexpr (backward) {
    if (!summed) return results;
#pragma unroll 1
    for (int u = 0; u < width && first + u < count; ++u) {
      const Index index = static_cast<Index>(first) + static_cast<Index>(u), at = plan.unit.quotient(index);
      const From* const from = input + static_cast<std::int64_t>(plan.unit.remainder(index, at)) * plan.axes.unit_stride;
      const Integer parts = plan.find<backward, Integer>(0, at, 0).count;
      C sum = convert<C>(from[plan.find<backward, Integer>(0, at, 0).offset]);
#pragma unroll 1
      for (Integer k = 1; k < parts; ++k) sum += convert<C>(from[plan.find<backward, Integer>(0, at, k).offset]);
#pragma unroll
      for (int v = 0; v < width; ++v) results[v] = v == u ? convert<T>(sum) : results[v];
    }
  }
  return results;
}

/// A thread takes `width` neighbouring elements of the output at a time. Those of one unit, or of one row and inside of its margins, are
/// read in runs, all others one by one. Reads each part once, writes each element once, in vectors. Deterministic.
template <bool backward, int width, class Integer, class T, class From>
__global__ void __launch_bounds__(cuda::default_threads)
    pad_rows(T* output, const From* __restrict__ input, const __grid_constant__ PaddingPlan plan, T value, std::int64_t count,
             bool vector) {
  using Index = std::make_unsigned_t<Integer>;
  for (std::int64_t first = cuda::first_item() * width; first < count; first += cuda::item_step() * width) {
    const Index position = plan.unit.quotient(static_cast<Index>(first));
    const Index row = plan.sizes[0].quotient(position), place = plan.sizes[0].remainder(position, row);
    const std::int64_t unit = plan.unit.value<std::int64_t>(), row_elements = plan.sizes[0].value<std::int64_t>() * unit;
    const std::int64_t channel = plan.unit.remainder(static_cast<Index>(first), position), at = place * unit + channel;
    const bool in_unit = plan.axes.unit_stride == 1 && channel + width <= unit, in_row = at + width <= row_elements;
    const bool inside = at >= plan.run_begin && at + width <= plan.run_end;
    const bool outside = at + width <= plan.run_begin || at >= plan.run_end;
    const int first_axis = in_unit ? 0 : 1;
    const Index index = in_unit ? position : row;
    const auto parts = plan.find<backward, Integer>(first_axis, index, 0);
    cuda::Vector<T, width> results;
    if (in_row && (parts.count == 0 || (outside && !plan.axes.axes[0].repeats))) {
#pragma unroll
      for (int v = 0; v < width; ++v) results[v] = value;
    } else if (in_unit || (in_row && inside && plan.runs)) {
      const std::int64_t begin = in_unit ? channel : at + plan.shift;
      results = sum_parts<backward, width, T, From>(parts.count, [&](Integer k) {
        const std::int64_t offset = k == 0 ? parts.offset : plan.find<backward, Integer>(first_axis, index, k).offset;
        return load_run<width>(input, offset + begin, plan.input_elements);
      });
    } else {
      results = pad_one_by_one<backward, width, Integer, T>(input, plan, value, first, count);
    }
    elementwise::store(output + first, results, count - first, vector);
  }
}

/// Whether vectors of so many elements are all of one unit, and of the input, where memory is aligned.
bool fills_vectors(const PaddedAxes& axes, int width) {
  bool fills = axes.unit_stride == 1 && axes.unit % width == 0;
  for (int axis = 0; axis < axes.rank; ++axis) fills = fills && axes.strides[axis] % width == 0;
  return fills;
}

template <bool backward, class T, class From>
void launch(CUstream_st* stream, const Tensor& output, const Tensor& input, const PaddedAxes& axes, double value) {
  constexpr int width = elementwise::width_for<T>;
  constexpr std::int64_t most_narrow = std::int64_t{1} << 30;
  const std::int64_t count = output.elements(), vectors = (count + width - 1) / width;
  const PaddingPlan plan(input, axes, width);
  const bool narrow = std::max(count, input.elements()) <= most_narrow, vector = elementwise::fits_vectors(output, width);
  if (vector && fills_vectors(axes, width) && elementwise::fits_vectors(input, width)) {
    const auto kernel = narrow ? pad_units<backward, width, std::int32_t, T, From> : pad_units<backward, width, std::int64_t, T, From>;
    cuda::launch(kernel, cuda::loop_shape(vectors), stream, output.data<T>(), input.data<From>(), plan, convert<T>(value), vectors);
  } else {
    const auto kernel = narrow ? pad_rows<backward, width, std::int32_t, T, From> : pad_rows<backward, width, std::int64_t, T, From>;
    cuda::launch(kernel, cuda::loop_shape(vectors), stream, output.data<T>(), input.data<From>(), plan, convert<T>(value), count, vector);
  }
}

}  // namespace

void pad_on_gpu(CUstream_st* stream, const Tensor& output, const Tensor& input, const PaddedAxes& axes, double value) {
  if (output.elements() == 0) return;
  if (axes.backward) {
    dispatch_floating_and_halves(output.dtype(), [&]<class T>() { launch<true, T, T>(stream, output, input, axes, value); });
    return;
  }
  dispatch_all(output.dtype(), [&]<class T>() {
    dispatch_stored_as<T>(input.dtype(), [&]<class From>() { launch<false, T, From>(stream, output, input, axes, value); });
  });
}

std::string describe_padding(const Tensor& output, const PaddedAxes& axes) {
  const int width = std::min(8, 16 / static_cast<int>(size_of(output.dtype())));
  if (fills_vectors(axes, width)) return "read and written in vectors";
  return axes.unit_stride == 1 && axes.strides[0] == axes.unit ? "rows, written in vectors" : "read one by one, written in vectors";
}

Kernel padding_kernel(PaddedAxes (*axes_of)(const KernelContext& call)) {
  return {.run = [axes_of](const KernelContext& call) { pad_on_gpu(call.stream, call.outputs[0], call.inputs[0], axes_of(call), 0); },
          .strided = true,
          .halves = true,
          .any_layout_inputs = {0},
          .any_layout_outputs = {0},
          .describe = [axes_of](const KernelContext& call) { return describe_padding(call.outputs[0], axes_of(call)); }};
}

}  // namespace frit::ops
