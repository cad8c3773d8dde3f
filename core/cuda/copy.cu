// Copies: bytes between host and device, and elements of any strides and dtypes on the device.

#include <algorithm>
#include <numeric>

#include "frit/core/convert.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/strided.cuh"
#include "frit/core/cuda/tile.cuh"
#include "frit/core/cuda/vector.cuh"

namespace frit::cuda {
namespace {

/// StridedIndex of tensors that are dense in one order, in vectors.
template <int width>
struct DenseIndex {
  __device__ void offsets(std::int64_t i, std::int64_t (&result)[2]) const { result[0] = result[1] = i * width; }
};

/// Vectors that a thread has on their way at a time: many where they are small or easily found.
template <class Index, std::size_t bytes>
constexpr int vectors_at_once = std::is_same_v<Index, StridedIndex<2>>&& bytes >= 8 ? 1 : 4;

/// Elements first ... first + width - 1, of which `count` exist.
template <class T, int width>
__device__ Vector<T, width> load(const T* from, std::int64_t count) {
  if (count >= width) {
    if constexpr (width == vector_width<T>) return load_once(from);
    return *reinterpret_cast<const Vector<T, width>*>(from);
  }
  Vector<T, width> elements{};
#pragma unroll
  for (int v = 0; v < width; ++v) {
    if (v < count) elements[v] = from[v];
  }
  return elements;
}

/// In vectors of elements that lie side by side in both, in the order of the destination's memory. The last one is cut short if `count`
/// says so. Reads and writes each element once.
template <int width, class To, class From, class Index>
__global__ void __launch_bounds__(default_threads) convert_vectors(To* to, const From* from, Index index, std::int64_t count) {
  constexpr int at_once = vectors_at_once<Index, sizeof(From) * width>;
  const std::int64_t step = blockDim.x, block_vectors = step * at_once;
  for (std::int64_t first = blockIdx.x * block_vectors + threadIdx.x; first * width < count; first += gridDim.x * block_vectors) {
    std::int64_t offsets[at_once][2];
    Vector<From, width> elements[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const std::int64_t vector = first + u * step;
      if (vector * width >= count) continue;
      index.offsets(vector, offsets[u]);
      elements[u] = load<From, width>(from + offsets[u][1], count - vector * width);
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const std::int64_t left = count - (first + u * step) * width;
      if (left <= 0) continue;
      Vector<To, width> converted;
#pragma unroll
      for (int v = 0; v < width; ++v) converted[v] = convert<To>(elements[u][v]);
      To* const place = to + offsets[u][0];
      if (left >= width) {
        *reinterpret_cast<Vector<To, width>*>(place) = converted;
        continue;
      }
#pragma unroll
      for (int v = 0; v < width; ++v) {
        if (v < left) place[v] = converted[v];
      }
    }
  }
}

/// Whether the elements of both tensors, of which collapse_axes has seen shape and strides, come in vectors of `width` that lie side by
/// side and aligned. Of a single axis the last vector may be cut short.
bool come_in_vectors(const Tensor& destination, const Tensor& source, int width, const Shape& shape,
                     const std::array<Strides, 2>& strides) {
  const int inner = shape.rank() - 1;
  if (inner > 0 && shape[inner] % width != 0) return false;
  for (std::size_t k = 0; k < 2; ++k) {
    const Tensor& tensor = k == 0 ? destination : source;
    if (reinterpret_cast<std::uintptr_t>(tensor.raw()) % (static_cast<std::size_t>(width) * size_of(tensor.dtype())) != 0) return false;
    if (strides[k][inner] != 1) return false;
    for (int axis = 0; axis < inner; ++axis) {
      if (strides[k][axis] % width != 0) return false;
    }
  }
  return true;
}

template <int width, class To, class From, class Index>
void launch_convert(const Tensor& destination, const Tensor& source, const Index& index, cudaStream_t stream) {
  constexpr int at_once = vectors_at_once<Index, sizeof(From) * width>;
  const std::int64_t count = source.elements(), thread_elements = std::int64_t{width} * at_once;
  launch(convert_vectors<width, To, From, Index>, loop_shape((count + thread_elements - 1) / thread_elements), stream,
         destination.data<To>(), source.data<From>(), index, count);
}

/// Words of a thread of gather_rows, which it writes at once: more would lie too far apart for those of a warp to be read at once.
template <class Word>
constexpr int gathered = sizeof(Word) < 8 ? 8 / static_cast<int>(sizeof(Word)) : 1;

/// A destination that is dense, of a source of any strides: neighbouring rows, (periods, vectors), of which a period's vectors all begin
/// where those of another do, so that a thread finds its vector's words once for all periods. Reads and writes each word once.
template <class Word>
__global__ void __launch_bounds__(default_threads)
    gather_rows(Word* to, const Word* __restrict__ from, const __grid_constant__ StridedIndex<1> index, int period_vectors,
                std::int64_t from_period, std::int64_t count) {
  constexpr int width = gathered<Word>, at_once = 4;
  const auto vector = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (vector >= period_vectors) return;
  int offsets[width];
#pragma unroll
  for (int v = 0; v < width; ++v) {
    const std::int64_t word = static_cast<std::int64_t>(vector) * width + v;
    offsets[v] = word < count ? static_cast<int>(index.offset(word)) : 0;
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y,
                     to_period = static_cast<std::int64_t>(period_vectors) * width;
  const std::int64_t left = count - static_cast<std::int64_t>(vector) * width;  // words from the first period's vector on
  for (std::int64_t period = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y; period * to_period < left;
       period += at_once * step) {
    Vector<Word, width> words[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int v = 0; v < width; ++v) {
        const bool exists = (period + u * step) * to_period + v < left;
        words[u][v] = exists ? from[(period + u * step) * from_period + offsets[v]] : Word{};
      }
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const std::int64_t first = (period + u * step) * to_period;
      Word* const place = to + first + static_cast<std::int64_t>(vector) * width;
      if (first + width <= left) {
        store_vector(place, words[u]);
        continue;
      }
#pragma unroll
      for (int v = 0; v < width; ++v) {
        if (first + v < left) place[v] = words[u][v];
      }
    }
  }
}

/// False, with nothing done, unless that is what the tensors are.
template <class Word>
bool gather(const Tensor& destination, const Tensor& source, const Shape& shape, const std::array<Strides, 2>& strides,
            cudaStream_t stream) {
  constexpr int width = gathered<Word>;
  const std::int64_t count = element_count(shape), row = count / shape[0];
  const std::int64_t period_rows = width / std::gcd(row, std::int64_t{width}), vectors = period_rows * row / width;
  std::int64_t reach = (period_rows - 1) * strides[1][0];
  for (int axis = 1; axis < shape.rank(); ++axis) reach += (shape[axis] - 1) * strides[1][axis];
  const std::int64_t vector_blocks = (vectors + default_threads - 1) / default_threads;
  if (strides[0] != dense_strides(shape) || reach > INT32_MAX || vector_blocks > UINT16_MAX) return false;
  if (reinterpret_cast<std::uintptr_t>(destination.raw()) % (width * sizeof(Word)) != 0) return false;
  const std::int64_t across = std::min<std::int64_t>(vectors, default_threads), down = default_threads / across;
  const std::int64_t periods = (shape[0] + period_rows - 1) / period_rows;
  const dim3 block(static_cast<unsigned>(across), static_cast<unsigned>(down));
  const std::int64_t in_turn = 4 * down;  // of a block, so that what a thread finds out first serves several times
  dim3 grid = loop_shape((periods + in_turn - 1) / in_turn, 1).grid;
  grid.y = static_cast<unsigned>(vector_blocks);
  launch(gather_rows<Word>, {grid, block}, stream, static_cast<Word*>(destination.raw()), static_cast<const Word*>(source.raw()),
         StridedIndex<1>(shape, {strides[1]}), static_cast<int>(vectors), period_rows * strides[1][0], count);
  return true;
}

/// Of one dtype, in the widest words that both tensors consist of.
void copy_words(const Tensor& destination, const Tensor& source, Shape shape, std::array<Strides, 2> strides, cudaStream_t stream) {
  int size = static_cast<int>(size_of(source.dtype())), width = 16 / size;
  while (width > 1 && !come_in_vectors(destination, source, width, shape, strides)) width /= 2;
  shape[shape.rank() - 1] /= width;
  for (Strides& of : strides) {
    for (int axis = 0; axis < shape.rank() - 1; ++axis) of[axis] /= width;
  }
  const auto run = [&]<class Word>() {
    if constexpr (sizeof(Word) < 16) {
      if (gather<Word>(destination, source, shape, strides, stream)) return;
    }
    using Index = StridedIndex<2>;
    const std::int64_t count = element_count(shape), at_once = vectors_at_once<Index, sizeof(Word)>;
    launch(convert_vectors<1, Word, Word, Index>, loop_shape((count + at_once - 1) / at_once), stream,
           static_cast<Word*>(destination.raw()), static_cast<const Word*>(source.raw()), Index(shape, strides), count);
  };
  switch (size * width) {
    case 1: return run.operator()<std::uint8_t>();
    case 2: return run.operator()<std::uint16_t>();
    case 4: return run.operator()<std::uint32_t>();
    case 8: return run.operator()<std::uint64_t>();
    default: return run.operator()<uint4>();
  }
}

/// A tile of (rows, columns) a block, turned in shared memory: rows are neighbours in `from`, columns in `to`. `width` elements at a time
/// on either side, aligned.
template <int tile_rows, int width, class T>
__global__ void __launch_bounds__(tile_threads) turn_tiles(T* to, const T* from, std::int64_t to_matrix, std::int64_t to_row,
                                                           std::int64_t from_matrix, std::int64_t from_column, const TileGrid grid) {
  constexpr int tile_columns = tile_elements / tile_rows;
  __shared__ TurnedTile<T, tile_rows, tile_columns> tile;
  const TilePlace<tile_rows, tile_columns> at(grid);
  const std::int64_t from_strides[3] = {from_matrix, 1, from_column}, to_strides[3] = {to_matrix, to_row, 1};
  tile.template load<width>(from, from_strides, at);
  __syncthreads();
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < tile_elements / width; i += tile_threads) {
    const int row = i / (tile_columns / width), column = i % (tile_columns / width) * width;
    if (at.has(row, column)) store_elements(to + at.offset(to_strides, row, column), tile.template row_elements<width>(row, column), true);
  }
}

template <class T>
void launch_turn(const Tensor& destination, const Tensor& source, const TileGrid& grid,
                 const std::array<std::array<std::int64_t, 3>, 2>& strides, cudaStream_t stream) {
  constexpr std::int64_t most = vector_width<T>;
  bool whole =
      grid.rows % most == 0 && grid.columns % most == 0 && aligned_for_vectors(destination.raw()) && aligned_for_vectors(source.raw());
  for (const auto& of : strides) {
    for (const std::int64_t stride : of) whole = whole && (stride == 1 || stride % most == 0);
  }
  const auto run = [&]<int tile_rows, int width>() {
    const auto [to_matrix, to_row, to_column] = strides[0];
    const auto [from_matrix, from_row, from_column] = strides[1];
    launch(turn_tiles<tile_rows, width, T>, {dim3(static_cast<unsigned>(tile_count(grid, tile_rows))), dim3(tile_threads)}, stream,
           static_cast<T*>(destination.raw()), static_cast<const T*>(source.raw()), to_matrix, to_row, from_matrix, from_column, grid);
  };
  const auto with_rows = [&]<int tile_rows>() {
    whole ? run.template operator()<tile_rows, static_cast<int>(most)>() : run.template operator()<tile_rows, 1>();
  };
  switch (tile_rows_for(grid.rows, grid.columns)) {
    case 16: return with_rows.template operator()<16>();
    case 64: return with_rows.template operator()<64>();
    default: return with_rows.template operator()<256>();
  }
}

/// False, with nothing done, unless the innermost axes of the one are those of the other the other way round; `shape` and `strides` are of
/// the destination's order and merged.
bool turn(const Tensor& destination, const Tensor& source, const Shape& shape, const std::array<Strides, 2>& strides, cudaStream_t stream) {
  constexpr std::int64_t least = 8;  // rows and columns
  const int columns = shape.rank() - 1, rows = columns - 1;
  if (destination.dtype() != source.dtype() || columns < 1 || columns > 2) return false;
  if (strides[0][columns] != 1 || strides[1][rows] != 1 || strides[1][columns] <= 1) return false;
  const TileGrid grid{rows == 0 ? 1 : shape[0], shape[rows], shape[columns]};
  if (grid.rows < least || grid.columns < least) return false;
  if (grid.matrices > 1 && grid.rows * grid.columns < tile_elements / 4) return false;  // most of a tile would be empty
  if (tile_count(grid, tile_rows_for(grid.rows, grid.columns)) > INT32_MAX) return false;
  std::array<std::array<std::int64_t, 3>, 2> of;
  for (std::size_t k = 0; k < 2; ++k) of[k] = {rows == 0 ? 0 : strides[k][0], strides[k][rows], strides[k][columns]};
  switch (size_of(source.dtype())) {
    case 1: launch_turn<std::uint8_t>(destination, source, grid, of, stream); break;
    case 2: launch_turn<std::uint16_t>(destination, source, grid, of, stream); break;
    case 4: launch_turn<std::uint32_t>(destination, source, grid, of, stream); break;
    default: launch_turn<std::uint64_t>(destination, source, grid, of, stream);
  }
  return true;
}

/// The axes, the outermost in memory first.
Dims memory_order(const Tensor& tensor) {
  Dims axes;
  for (int axis = 0; axis < tensor.rank(); ++axis) axes.push_back(axis);
  std::stable_sort(axes.begin(), axes.end(), [&](std::int64_t a, std::int64_t b) {
    return tensor.strides()[static_cast<int>(a)] > tensor.strides()[static_cast<int>(b)];
  });
  return axes;
}

void copy_on_device(const Tensor& given_destination, const Tensor& given_source) {
  const Dims order = memory_order(given_destination);
  const Tensor destination = given_destination.permute(order), source = given_source.permute(order);
  const cudaStream_t stream = compute_stream(destination.device().index);
  Shape shape = source.shape();
  std::array<Strides, 2> strides{destination.strides(), source.strides()};
  collapse_axes(shape, strides);
  const StridedIndex<2> index(shape, strides);
  if (destination.dtype() == source.dtype() && index.is_dense()) {
    if (destination.raw() == source.raw()) return;
    FRIT_CUDA_CALL(cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<std::size_t>(source.bytes()), cudaMemcpyDefault, stream));
    return;
  }
  if (turn(destination, source, shape, strides, stream)) return;
  if (destination.dtype() == source.dtype()) return copy_words(destination, source, shape, strides, stream);
  dispatch_all(destination.dtype(), [&]<class To>() {
    dispatch_all(source.dtype(), [&]<class From>() {
      if constexpr (!std::is_same_v<To, From>) {
        constexpr int width = 16 / static_cast<int>(std::max(sizeof(To), sizeof(From)));
        if (!come_in_vectors(destination, source, width, shape, strides)) {
          launch_convert<1, To, From>(destination, source, index, stream);
        } else if (index.is_dense()) {
          launch_convert<width, To, From>(destination, source, DenseIndex<width>(), stream);
        } else {
          const int inner = shape.rank() - 1;
          shape[inner] /= width;
          for (Strides& of : strides) of[inner] = width;
          launch_convert<width, To, From>(destination, source, StridedIndex<2>(shape, strides), stream);
        }
      }
    });
  });
}

bool is_pinned(const void* memory) {
  cudaPointerAttributes attributes;
  FRIT_CUDA_CALL(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeHost;
}

/// Both contiguous, of one dtype. The host's memory is the caller's again afterwards. Where this is pageable, CUDA waits for the stream
/// itself, but for a few bytes that go to the device: without the limit of synchronize(), which therefore comes first.
void copy_bytes(const Tensor& destination, const Tensor& source) {
  constexpr std::int64_t few_bytes = 64 << 10;
  const bool to_host = destination.device() == Device::cpu();
  const int index = (to_host ? source : destination).device().index;
  const bool pinned = is_pinned((to_host ? destination : source).raw());
  if (!pinned && (to_host || source.bytes() > few_bytes)) synchronize(index);
  FRIT_CUDA_CALL(
      cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<std::size_t>(source.bytes()), cudaMemcpyDefault, compute_stream(index)));
  if (pinned) synchronize(index);
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source) {
  if (source.elements() == 0) return;
  if (destination.device() == source.device()) return copy_on_device(destination, source);
  // The bytes travel as they are; what else there is to do is done on the destination's side.
  const Tensor dense = source.contiguous();
  if (destination.is_contiguous() && destination.dtype() == source.dtype()) return copy_bytes(destination, dense);
  const Tensor arrived = Tensor::empty(source.shape(), source.dtype(), destination.device());
  copy_bytes(arrived, dense);
  frit::copy(destination, arrived);
}

}  // namespace frit::cuda
