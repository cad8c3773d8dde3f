// A cast is a copy between dtypes, or between layouts. Those of many tensors, as parameters are, are one launch.

#include "frit/ops/cuda/tensor_table.cuh"
#include "frit/ops/elementwise/pointwise.cuh"

namespace frit::ops {
namespace {

/// Elements along the shorter side of a block that is turned, the taps of a kernel mostly.
constexpr std::uint32_t most_taps = 512;
/// Of a chunk.
template <int width>
constexpr std::int64_t chunk_elements = 2 * cuda::default_threads* width;

/// Of each tensor the result, then the input. The input's elements lie in the result's order where `rows` is 1; else each block of
/// rows x columns elements of the result is the transpose of one of the input.
struct CastTable : TensorTable<2> {
  using TensorTable::TensorTable;
  std::uint32_t rows[capacity], columns[capacity];

  /// False if the tensors lie in other ways.
  bool take(const Tensor& output, const Tensor& input) {
    std::int64_t block_rows = 1, block_columns = 1;
    const bool in_order = (output.is_contiguous() && input.is_contiguous()) ||
                          (output.is_contiguous(Layout::channels_last) && input.is_contiguous(Layout::channels_last));
    if (!in_order) {
      const bool from_last = output.is_contiguous() && input.is_contiguous(Layout::channels_last);
      const bool to_last = output.is_contiguous(Layout::channels_last) && input.is_contiguous();
      if (!(from_last || to_last) || output.elements() == 0 || output.elements() > INT32_MAX) return false;
      block_rows = output.dim(1);
      block_columns = output.elements() / output.dim(0) / output.dim(1);
      if (to_last) std::swap(block_rows, block_columns);
      if (std::min(block_rows, block_columns) > most_taps) return false;
    }
    rows[tensors] = static_cast<std::uint32_t>(block_rows);
    columns[tensors] = static_cast<std::uint32_t>(block_columns);
    add(output.elements(), {output.raw(), input.raw()});
    return true;
  }
};

/// Moves `count` elements that lie so far apart, converted, as many reads under way at a time as are taps of a kernel mostly.
template <class To, class From>
__device__ void move_line(To* to, std::uint32_t to_step, const From* from, std::uint32_t from_step, std::uint32_t count) {
  constexpr std::uint32_t at_once = 9;
  for (std::uint32_t first = 0; first < count; first += at_once) {
    From elements[at_once];
#pragma unroll
    for (std::uint32_t k = 0; k < at_once; ++k) {
      if (first + k < count) elements[k] = from[(first + k) * from_step];
    }
#pragma unroll
    for (std::uint32_t k = 0; k < at_once; ++k) {
      if (first + k < count) to[(first + k) * to_step] = convert<To>(elements[k]);
    }
  }
}

/// A block a chunk of a tensor, of which a thread takes `width` neighbouring elements at a time; or, where the input lies in another order,
/// places along the longer sides of blocks, with all elements there. Neighbouring threads write neighbouring elements either way: those of
/// a place that the result has side by side go by way of shared memory. Reads and writes each element once. Deterministic.
template <int width, class To, class From>
__global__ void __launch_bounds__(cuda::default_threads) cast_kernel(const __grid_constant__ CastTable table) {
  const auto chunk = table.chunk(blockIdx.x);
  To* const to = static_cast<To*>(table.memory[0][chunk.tensor]);
  const From* const from = static_cast<const From*>(table.memory[1][chunk.tensor]);
  const std::uint32_t rows = table.rows[chunk.tensor], columns = table.columns[chunk.tensor];
  if (rows > 1) {
    __shared__ To tile[chunk_elements<width> + most_taps];
    const bool to_rows = rows < columns;  // an element of each of few long rows, which lie side by side in the input
    const std::uint32_t taps = to_rows ? rows : columns, places = to_rows ? columns : rows;
    const auto place_of = [taps](std::int64_t element) { return static_cast<std::uint32_t>((element + taps - 1) / taps); };
    const std::uint32_t first = place_of(chunk.begin), end = place_of(chunk.end);
    for (std::uint32_t item = first + threadIdx.x; item < end; item += blockDim.x) {
      const std::uint32_t place = item % places, in_rows = (item - place) * taps + place;
      if (to_rows) {
        move_line(to + in_rows, places, from + item * taps, 1, taps);
      } else {
        move_line(tile + (item - first) * taps, 1, from + in_rows, places, taps);
      }
    }
    if (to_rows) return;
    __syncthreads();
#pragma unroll 8
    for (std::uint32_t i = threadIdx.x; i < (end - first) * taps; i += blockDim.x) to[first * taps + i] = tile[i];
    return;
  }
  const auto fits = [](const void* memory, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0; };
  const bool vector = fits(to, width * sizeof(To)) && fits(from, width * sizeof(From));
  for (std::int64_t first = chunk.begin + threadIdx.x * width; first < chunk.end; first += blockDim.x * width) {
    const cuda::Vector<From, width> elements = elementwise::load<width>(from + first, chunk.end - first, vector);
    elementwise::store(to + first, converted<To, width>(elements), chunk.end - first, vector);
  }
}

/// Images between layouts are larger: they are copied in tiles, each in a launch.
constexpr std::int64_t most_parameters = 4 << 20;

template <class To, class From>
void cast_together(std::span<const KernelContext> calls) {
  constexpr int width = elementwise::width_for<To, From>;
  CastTable table(chunk_elements<width>);
  const auto launch = [&] {
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(table.chunks)), dim3(cuda::default_threads)};
    if (table.chunks > 0) cuda::launch(cast_kernel<width, To, From>, shape, calls[0].stream, table);
    table = CastTable(chunk_elements<width>);
  };
  for (const KernelContext& call : calls) {
    const bool is_image = std::is_same_v<To, From> && call.outputs[0].elements() > most_parameters;
    if (is_image || !table.take(call.outputs[0], call.inputs[0])) copy(call.outputs[0], call.inputs[0]);
    if (table.full()) launch();
  }
  launch();
}

void run_cast(const KernelContext& call) { copy(call.outputs[0], call.inputs[0]); }

void run_casts(std::span<const KernelContext> calls) {
  const DType to = calls[0].outputs[0].dtype(), from = calls[0].inputs[0].dtype();
  if (to == DType::f16 && from == DType::f32) return cast_together<Half, float>(calls);
  if (to == DType::bf16 && from == DType::f32) return cast_together<BFloat16, float>(calls);
  if (to == DType::f32 && from == DType::f16) return cast_together<float, Half>(calls);
  if (to == DType::f32 && from == DType::bf16) return cast_together<float, BFloat16>(calls);
  if (to == from && size_of(to) == sizeof(std::uint16_t)) return cast_together<std::uint16_t, std::uint16_t>(calls);
  if (to == from && size_of(to) == sizeof(std::uint32_t)) return cast_together<std::uint32_t, std::uint32_t>(calls);
  for (const KernelContext& call : calls) run_cast(call);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(cast) {
  Kernel kernel = map_kernel(run_cast, 1, /*halves=*/true);
  kernel.run_together = run_casts;
  kernel.functor = functor_data<std::remove_const_t<decltype(cast_function)>>;
  registry.add_cuda("cast", std::move(kernel));
}
