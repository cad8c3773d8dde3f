// A cast is a copy between dtypes, or between layouts. Those of many tensors, as parameters are, are one launch.

#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/cuda/tensor_table.cuh"
#include "frit/ops/elementwise/pointwise.cuh"

namespace frit::ops {
namespace {

/// Elements along the shorter side of a block that is turned, the taps of a kernel mostly.
constexpr std::uint32_t most_taps = 512;
/// Blocks of more lines than weights mostly have are copied in square tiles, each tensor in a launch, where they are large.
constexpr std::uint32_t most_turned_taps = 128;
constexpr std::int64_t most_turned_elements = 4 << 20;

/// Of a chunk.
template <class To>
constexpr std::int64_t chunk_elements = 8192 / sizeof(To);

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
      const std::int64_t taps = std::min(block_rows, block_columns);
      const bool in_tiles = output.dtype() == input.dtype() && taps > most_turned_taps && output.elements() > most_turned_elements;
      if (taps > most_taps || in_tiles) return false;
    }
    rows[tensors] = static_cast<std::uint32_t>(block_rows);
    columns[tensors] = static_cast<std::uint32_t>(block_columns);
    add(output.elements(), {output.raw(), input.raw()});
    return true;
  }
};

/// Some places of a tensor's blocks, which have `taps` lines of `places` elements each, turned in shared memory: there all taps of a place
/// are neighbours, as in one of the two tensors, where in the other the places of a tap are. A group of `width` neighbouring places takes
/// an odd number of vectors, so that threads that go along a tap meet no bank twice.
template <int width>
struct TurnedPlaces {
  std::uint32_t taps, places, first, end;  ///< of the places, those of all blocks counted on

  __device__ TurnedPlaces(std::uint32_t taps, std::uint32_t places, std::int64_t begin, std::int64_t end)
      : taps(taps), places(places), first(at_or_after(begin)), end(at_or_after(end)) {}

  /// Elements in shared memory for those of a chunk.
  static constexpr std::uint32_t most_held(std::uint32_t of_chunk) { return of_chunk / 2 * 3 + width * (most_taps + 1); }

  /// body(element, held) for each vector of a place's taps, and maybe the next ones': where it lies in memory, and where in shared memory.
  template <class Body>
  __device__ void for_neighbours(const Body& body) const {
    const std::uint32_t group = width * taps, count = (end - first) * taps;
#pragma unroll 2
    for (std::uint32_t i = threadIdx.x * width; i < count; i += blockDim.x * width) body(first * taps + i, held(i / group) + i % group);
  }
  /// body(element, held) for each vector of a tap's places, which are `taps` elements apart in shared memory.
  template <class Body>
  __device__ void for_lines(const Body& body) const {
    constexpr std::uint32_t warp = cuda::warp_size, lanes = width == 1 ? warp : 8, taps_at_once = warp / lanes;
    const std::uint32_t groups = (end - first) / width, group_blocks = (groups + lanes - 1) / lanes;
    const std::uint32_t items = group_blocks * ((taps + taps_at_once - 1) / taps_at_once);
    const std::uint32_t lane = threadIdx.x % lanes, own_tap = threadIdx.x % warp / lanes;
#pragma unroll 2
    for (std::uint32_t item = threadIdx.x / warp; item < items; item += blockDim.x / warp) {
      const std::uint32_t group = item % group_blocks * lanes + lane, tap = item / group_blocks * taps_at_once + own_tap;
      if (group >= groups || tap >= taps) continue;
      const std::uint32_t number = first + group * width, place = number % places;
      body((number - place) * taps + tap * places + place, held(group) + tap);
    }
  }

 private:
  __device__ std::uint32_t held(std::uint32_t group) const { return group * width * (taps | 1); }
  /// A group belongs to the chunk where its first element is.
  __device__ std::uint32_t at_or_after(std::int64_t element) const {
    const std::uint32_t group = width * taps;
    return (static_cast<std::uint32_t>(element) + group - 1) / group * width;
  }
};

/// Elements that lie in the other order, by way of shared memory.
template <int width, class To, class From>
__device__ void turn(To* to, const From* from, To* tile, const TurnedPlaces<width>& turned, bool to_lines) {
  using Results = cuda::Vector<To, width>;
  using Elements = cuda::Vector<From, width>;
  const std::uint32_t taps = turned.taps;
  if (to_lines) {
    turned.for_neighbours([&](std::uint32_t element, std::uint32_t held) {
      *reinterpret_cast<Results*>(tile + held) = converted<To, width>(*reinterpret_cast<const Elements*>(from + element));
    });
    __syncthreads();
    turned.for_lines([&](std::uint32_t element, std::uint32_t held) {
      Results results;
#pragma unroll
      for (int k = 0; k < width; ++k) results[k] = tile[held + static_cast<std::uint32_t>(k) * taps];
      *reinterpret_cast<Results*>(to + element) = results;
    });
  } else {
    turned.for_lines([&](std::uint32_t element, std::uint32_t held) {
      const Results results = converted<To, width>(*reinterpret_cast<const Elements*>(from + element));
#pragma unroll
      for (int k = 0; k < width; ++k) tile[held + static_cast<std::uint32_t>(k) * taps] = results[k];
    });
    __syncthreads();
    turned.for_neighbours([&](std::uint32_t element, std::uint32_t held) {
      *reinterpret_cast<Results*>(to + element) = *reinterpret_cast<const Results*>(tile + held);
    });
  }
}

/// A block a chunk of a tensor, of which a thread takes `width` neighbouring elements at a time; or, where the input lies in another order,
/// places along the longer sides of blocks, with all elements there. Reads and writes each element once, neighbouring threads neighbouring
/// ones. Deterministic.
template <int width, class To, class From>
__global__ void __launch_bounds__(cuda::default_threads) cast_kernel(const __grid_constant__ CastTable table) {
  const auto chunk = table.chunk(blockIdx.x);
  To* const to = static_cast<To*>(table.memory[0][chunk.tensor]);
  const From* const from = static_cast<const From*>(table.memory[1][chunk.tensor]);
  const auto fits = [](const void* memory, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0; };
  const bool vector = fits(to, width * sizeof(To)) && fits(from, width * sizeof(From));
  const std::uint32_t rows = table.rows[chunk.tensor], columns = table.columns[chunk.tensor];
  if (rows > 1) {
    __shared__ alignas(16) To tile[TurnedPlaces<width>::most_held(chunk_elements<To>)];
    const bool to_lines = rows < columns;
    const std::uint32_t taps = to_lines ? rows : columns, places = to_lines ? columns : rows;
    if (vector && places % width == 0) return turn(to, from, tile, TurnedPlaces<width>(taps, places, chunk.begin, chunk.end), to_lines);
    return turn(to, from, tile, TurnedPlaces<1>(taps, places, chunk.begin, chunk.end), to_lines);
  }
  for (std::int64_t first = chunk.begin + threadIdx.x * width; first < chunk.end; first += blockDim.x * width) {
    const cuda::Vector<From, width> elements = elementwise::load<width>(from + first, chunk.end - first, vector);
    elementwise::store(to + first, converted<To, width>(elements), chunk.end - first, vector);
  }
}

template <class To, class From>
void cast_together(std::span<const KernelContext> calls) {
  constexpr int width = elementwise::width_for<To, From>;
  CastTable table(chunk_elements<To>);
  const auto launch = [&] {
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(table.chunks)), dim3(cuda::default_threads)};
    if (table.chunks > 0) cuda::launch(cast_kernel<width, To, From>, shape, calls[0].stream, table);
    table = CastTable(chunk_elements<To>);
  };
  for (const KernelContext& call : calls) {
    if (!table.take(call.outputs[0], call.inputs[0])) copy(call.outputs[0], call.inputs[0]);
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
