// Copies: bytes between host and device, and elements of any strides and dtypes on the device.

#include <algorithm>

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

/// Vectors that a thread has on their way at a time: many where they are easily found.
template <class Index>
constexpr int vectors_at_once = std::is_same_v<Index, StridedIndex<2>> ? 1 : 4;

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
  constexpr int at_once = vectors_at_once<Index>;
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

/// Whether the elements of both tensors come in vectors of `width` that lie side by side and aligned; then `shape` and `strides`, which
/// collapse_axes has seen, become those of the vectors. Of a single axis the last vector may be cut short.
bool walk_in_vectors(const Tensor& destination, const Tensor& source, int width, Shape& shape, std::array<Strides, 2>& strides) {
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
  shape[inner] = (shape[inner] + width - 1) / width;
  for (Strides& of : strides) of[inner] = width;
  return true;
}

template <int width, class To, class From, class Index>
void launch_convert(const Tensor& destination, const Tensor& source, const Index& index, cudaStream_t stream) {
  const std::int64_t count = source.elements(), thread_elements = std::int64_t{width} * vectors_at_once<Index>;
  launch(convert_vectors<width, To, From, Index>, loop_shape((count + thread_elements - 1) / thread_elements), stream,
         destination.data<To>(), source.data<From>(), index, count);
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
  dispatch_all(destination.dtype(), [&]<class To>() {
    dispatch_all(source.dtype(), [&]<class From>() {
      constexpr int width = 16 / static_cast<int>(std::max(sizeof(To), sizeof(From)));
      if (!walk_in_vectors(destination, source, width, shape, strides)) {
        launch_convert<1, To, From>(destination, source, index, stream);
      } else if (index.is_dense()) {
        launch_convert<width, To, From>(destination, source, DenseIndex<width>(), stream);
      } else {
        launch_convert<width, To, From>(destination, source, StridedIndex<2>(shape, strides), stream);
      }
    });
  });
}

bool is_pinned(const void* memory) {
  cudaPointerAttributes attributes;
  FRIT_CUDA_CALL(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeHost;
}

/// Both contiguous, of one dtype. The host's memory is the caller's again afterwards.
void copy_bytes(const Tensor& destination, const Tensor& source) {
  const bool to_host = destination.device() == Device::cpu();
  const int index = (to_host ? source : destination).device().index;
  FRIT_CUDA_CALL(
      cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<std::size_t>(source.bytes()), cudaMemcpyDefault, compute_stream(index)));
  if (to_host || is_pinned(source.raw())) synchronize(index);
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
