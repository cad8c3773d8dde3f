// Values that indices put on each line along an axis.

#include <bit>

#include "frit/core/convert.h"
#include "frit/ops/cuda/key_sort.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

/// One value a line. An index outside the line, for which the CPU throws, leaves zeros.
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

void put_one_a_line(const KernelContext& call, int axis) {
  const Tensor& output = call.outputs[0];
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

/// Where values go, and where they come from: each index has a slice of values, of elements that share it.
struct Places {
  const std::int64_t* indices;               // (outer, count, inner)
  std::int64_t count, inner, size;           ///< of a line: indices, elements
  std::int64_t axis_stride;                  ///< of the output
  std::int64_t slice;                        ///< elements
  cuda::StridedIndex<2> of_index, in_slice;  ///< offsets in the values and, but for the index, in the output

  __device__ bool names_an_element(std::int64_t i) const { return indices[i] >= 0 && indices[i] < size; }
  __device__ std::int64_t line(std::int64_t i) const { return i / (count * inner) * inner + i % inner; }
  __device__ std::int64_t value(std::int64_t i, std::int64_t element) const { return offset<0>(i, element); }
  __device__ std::int64_t result(std::int64_t i, std::int64_t element) const { return offset<1>(i, element) + indices[i] * axis_stride; }

  template <int of>
  __device__ std::int64_t offset(std::int64_t i, std::int64_t element) const {
    std::int64_t first[2], within[2];
    of_index.offsets(i, first);
    in_slice.offsets(element, within);
    return first[of] + within[of];
  }
};

Places places_of(const KernelContext& call) {
  const Tensor &output = call.outputs[0], &indices = call.inputs[1];
  const auto& attributes = call.as<PutAttributes>();
  const IndexedValues values(output.shape(), attributes.axis, attributes.keep_dims, indices);
  const Strides from = dense_strides(values.shape);
  Strides to = output.strides();
  const std::int64_t axis_stride = std::exchange(to[values.axis], 0);
  Shape shared = values.shape, own = values.shape;
  std::int64_t inner = 1;
  for (int i = 0; i < shared.rank(); ++i) {
    const bool is_shared = i != values.axis && values.indices[i] == 0;
    (is_shared ? own : shared)[i] = 1;
    if (i > values.axis) inner *= own[i];
  }
  return {.indices = indices.data<std::int64_t>(),
          .count = values.shape[values.axis],
          .inner = inner,
          .size = output.dim(values.axis),
          .axis_stride = axis_stride,
          .slice = element_count(shared),
          .of_index = cuda::StridedIndex<2>(own, {from, to}),
          .in_slice = cuda::StridedIndex<2>(shared, {from, to})};
}

/// A thread a value, where no two go to one place.
template <class T>
__global__ void put_elements(T* output, const T* values, const __grid_constant__ Places places, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t index = i / places.slice, element = i % places.slice;
    if (places.names_an_element(index)) output[places.result(index, element)] = values[places.value(index, element)];
  }
}

/// A key for each place in the output that indices may name, and one more for what names nothing.
__global__ void find_keys(std::uint64_t* keys, std::int64_t* numbers, const __grid_constant__ Places places, std::uint64_t nothing,
                          std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    keys[i] = places.names_an_element(i) ? static_cast<std::uint64_t>(places.line(i) * places.size + places.indices[i]) : nothing;
    numbers[i] = i;
  }
}

/// Indices, sorted by what they name, in chunks: a run of equal ones may begin in one chunk and end in another.
struct SortedIndices {
  static constexpr std::int64_t chunk = 16;
  const std::uint64_t* keys;
  const std::int64_t* numbers;
  std::int64_t count;

  __device__ bool continues(std::int64_t i) const { return i > 0 && i < count && keys[i] == keys[i - 1]; }
};

/// A thread a chunk and element of a slice. Adds up the parts of runs: one that lies within the chunk goes to the output, one that began
/// earlier to `heads`, one that begins here and goes on to `tails`. Reads each value once. Deterministic.
template <class T, class Sum = Computed<T>>
__global__ void add_chunks(T* output, Sum* heads, Sum* tails, const T* values, const __grid_constant__ Places places, SortedIndices sorted,
                           std::int64_t count) {
  for (std::int64_t item = cuda::first_item(); item < count; item += cuda::item_step()) {
    const std::int64_t begin = item / places.slice * sorted.chunk, element = item % places.slice;
    const std::int64_t end = std::min(begin + sorted.chunk, sorted.count);
    bool began_earlier = sorted.continues(begin);
    Sum sum = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t index = sorted.numbers[i];
      sum = Add<Sum>{}(sum, convert<Sum>(values[places.value(index, element)]));
      const bool goes_on = sorted.continues(i + 1);
      if (goes_on && i + 1 < end) continue;
      if (began_earlier) {
        heads[item] = sum;
      } else if (goes_on) {
        tails[item] = sum;
      } else if (places.names_an_element(index)) {
        output[places.result(index, element)] = convert<T>(sum);
      }
      sum = 0;
      began_earlier = false;
    }
  }
}

/// Likewise; adds up the parts of the run that begins in the chunk and goes on.
template <class T, class Sum = Computed<T>>
__global__ void join_chunks(T* output, const Sum* heads, const Sum* tails, const __grid_constant__ Places places, SortedIndices sorted,
                            std::int64_t count) {
  for (std::int64_t item = cuda::first_item(); item < count; item += cuda::item_step()) {
    const std::int64_t begin = item / places.slice * sorted.chunk;
    std::int64_t next = begin + sorted.chunk;
    if (!sorted.continues(next)) continue;
    const std::uint64_t key = sorted.keys[next];
    const std::int64_t index = sorted.numbers[next];
    const bool began_earlier = sorted.continues(begin) && sorted.keys[begin] == key;
    if (began_earlier || !places.names_an_element(index)) continue;
    Sum sum = tails[item];
    for (std::int64_t part = item + places.slice; next < sorted.count && sorted.keys[next] == key;
         part += places.slice, next += sorted.chunk) {
      sum = Add<Sum>{}(sum, heads[part]);
    }
    output[places.result(index, item % places.slice)] = convert<T>(sum);
  }
}

/// Memory for sorted indices and the parts of runs.
struct AddScratch {
  std::int64_t indices, parts;
  std::size_t sorting, part_bytes;

  AddScratch(std::int64_t values, std::int64_t index_count, DType dtype)
      : indices(index_count),
        parts((index_count + SortedIndices::chunk - 1) / SortedIndices::chunk * (index_count == 0 ? 0 : values / index_count)),
        sorting((KeySort::bytes(index_count) + 255) / 256 * 256),
        part_bytes(static_cast<std::size_t>(parts) * std::max(size_of(dtype), sizeof(float))) {}
  std::size_t bytes() const { return sorting + 2 * part_bytes; }
};

template <class T>
void add_elements(const KernelContext& call, const Places& places) {
  const Tensor &output = call.outputs[0], &values = call.inputs[0];
  const AddScratch scratch(values.elements(), call.inputs[1].elements(), values.dtype());
  const std::uint64_t nothing = static_cast<std::uint64_t>(output.elements());  // there are no more places
  KeySort sort(call.scratch, scratch.indices);
  cuda::launch(find_keys, cuda::loop_shape(scratch.indices), call.stream, sort.keys(), sort.places(), places, nothing, scratch.indices);
  sort.sort(call.stream, std::bit_width(nothing));
  using Sum = Computed<T>;
  auto* const heads = reinterpret_cast<Sum*>(call.scratch.data() + scratch.sorting);
  auto* const tails = reinterpret_cast<Sum*>(call.scratch.data() + scratch.sorting + scratch.part_bytes);
  const SortedIndices sorted{sort.keys(), sort.places(), scratch.indices};
  const cuda::LaunchShape shape = cuda::loop_shape(scratch.parts);
  cuda::launch(add_chunks<T>, shape, call.stream, output.data<T>(), heads, tails, values.data<T>(), places, sorted, scratch.parts);
  cuda::launch(join_chunks<T>, shape, call.stream, output.data<T>(), heads, tails, places, sorted, scratch.parts);
}

bool is_one_a_line(const Shape& values, const Shape& indices, const PutAttributes& attributes) {
  return !attributes.keep_dims || (values == indices && values[normalize_axis(attributes.axis, values.rank(), "put_along_axis")] == 1);
}

void run(const KernelContext& call) {
  const Tensor &output = call.outputs[0], &values = call.inputs[0];
  const auto& attributes = call.as<PutAttributes>();
  if (is_one_a_line(values.shape(), call.inputs[1].shape(), attributes)) {
    return put_one_a_line(call, normalize_axis(attributes.axis, output.rank(), "put_along_axis"));
  }
  if (output.elements() == 0) return;
  FRIT_CUDA_CALL(cudaMemsetAsync(output.raw(), 0, static_cast<std::size_t>(output.bytes()), call.stream));
  if (values.elements() == 0) return;
  const Places places = places_of(call);
  dispatch_all(output.dtype(), [&]<class T>() {
    if (!attributes.distinct) return add_elements<T>(call, places);
    cuda::launch(put_elements<T>, cuda::loop_shape(values.elements()), call.stream, output.data<T>(), values.data<T>(), places,
                 values.elements());
  });
}

std::size_t scratch(const InferContext& call) {
  const auto& attributes = call.as<PutAttributes>();
  if (attributes.distinct || is_one_a_line(call.shape(0), call.shape(1), attributes)) return 0;
  return AddScratch(call.inputs[0].elements(), call.inputs[1].elements(), call.inputs[0].dtype).bytes();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(put_along_axis) {
  registry.add_cuda("put_along_axis", {.run = run, .halves = true, .scratch = scratch, .any_layout_outputs = {0}});
}
