#pragma once

#include <optional>

#include "frit/ops/norm/slices.cuh"

namespace frit::ops {

// How the CUDA kernels of the norms traverse matrices whose columns belong to channels: images in channels-last layout, and contiguous ones
// of a few elements a channel. A block has a thread for each vector of some neighbouring columns, as often as there is room for: so it
// reads whole stretches of memory, and a thread keeps what it needs of its channels.

/// Matrices of (rows, columns), one after the other. `group` neighbouring columns of one are a slice, `channel_columns` of them a channel.
struct ColumnGeometry {
  std::int64_t matrices, rows, columns, group, channel_columns;

  /// Of a norm whose input lies in this layout; none where its slices are runs of neighbouring elements.
  static std::optional<ColumnGeometry> of(const NormGeometry& g, Layout layout) {
    const bool batch = g.weight_axis == WeightAxis::slice;
    if (std::max(g.slices, g.channels) * 8 > INT32_MAX) return std::nullopt;  // columns are counted by int on the device
    if (layout == Layout::channels_last) {
      if (batch) return ColumnGeometry{1, g.runs * g.run_length, g.slices, 1, 1};
      return ColumnGeometry{g.channels == 0 ? 0 : g.slices * g.runs / g.channels, g.run_length, g.channels, g.runs, 1};
    }
    if (batch && g.run_length > 0 && g.run_length < 8)
      return ColumnGeometry{1, g.runs, g.slices * g.run_length, g.run_length, g.run_length};
    return std::nullopt;
  }

  FRIT_HOST_DEVICE std::int64_t groups() const { return columns / group; }
  __device__ std::int64_t slice(std::int64_t matrix, int column) const {
    return matrix * (static_cast<int>(columns) / static_cast<int>(group)) + column / static_cast<int>(group);
  }
  __device__ std::int64_t channel(int column) const { return column / static_cast<int>(channel_columns); }
  /// Of the first element in the slice of a column, from the first matrix's beginning.
  __device__ std::int64_t first_of(std::int64_t matrix, int column) const {
    return matrix * rows * columns + column - column % static_cast<int>(group);
  }
  /// Where a slice begins, from the first matrix's beginning.
  FRIT_HOST_DEVICE std::int64_t first_of(std::int64_t slice) const { return slice / groups() * rows * columns + slice % groups() * group; }
  /// Sums of columns that a call keeps at a time, at most.
  std::int64_t most_sums() const;
};

/// How blocks share the matrices out: each has `lanes` vectors of columns of some rows of one.
struct ColumnSplit {
  static constexpr int threads = cuda::default_threads, most_lanes = 32;
  /// Blocks of sums that a device holds at a time, and of others, which have nothing to hand on.
  static constexpr std::int64_t resident_blocks = 132 * 3, passing_blocks = 132 * 16;

  std::int64_t rows, columns, matrices, chunks, column_blocks, chunk_rows;
  int width, lanes;

  ColumnSplit(const ColumnGeometry& g, int width_, std::int64_t most_blocks = resident_blocks)
      : rows(g.rows), columns(g.columns), matrices(g.matrices), width(width_) {
    // Enough blocks to fill a device, each with enough rows to outweigh what it begins and ends with.
    constexpr std::int64_t least_thread_rows = 8;
    const std::int64_t vectors = std::max<std::int64_t>(1, columns / width);
    column_blocks = (vectors + most_lanes - 1) / most_lanes;
    lanes = static_cast<int>((vectors + column_blocks - 1) / column_blocks);
    const std::int64_t least_rows = threads / lanes * least_thread_rows, others = std::max<std::int64_t>(1, column_blocks * matrices);
    chunks = std::clamp<std::int64_t>((rows + least_rows - 1) / least_rows, 1, std::max<std::int64_t>(1, most_blocks / others));
    chunk_rows = (rows + chunks - 1) / chunks;
  }

  cuda::LaunchShape shape() const { return {dim3(static_cast<unsigned>(column_blocks * matrices * chunks)), dim3(threads)}; }
  /// That sum_columns writes.
  std::int64_t sums() const { return chunks * matrices * columns; }
};

/// Of elements of any size.
inline std::int64_t ColumnGeometry::most_sums() const {
  std::int64_t sums = 0;
  for (const int width : {1, 2, 4, 8}) sums = std::max(sums, ColumnSplit(*this, width).sums());
  return sums;
}

/// The part of a thread: column `column` and those that its vector has next to it, rows row, row + step, ... below `end` of a matrix.
struct ColumnIterator {
  std::int64_t row, end;
  int matrix, chunk, column, step, lane, strip;
  bool inside;  ///< the thread has columns

  __device__ explicit ColumnIterator(const ColumnSplit& split) {
    const auto columns_of = static_cast<unsigned>(split.column_blocks), matrices_of = static_cast<unsigned>(split.matrices);
    const unsigned rest = blockIdx.x / columns_of;
    chunk = static_cast<int>(rest / matrices_of);
    matrix = static_cast<int>(rest % matrices_of);
    lane = static_cast<int>(threadIdx.x) % split.lanes;
    strip = static_cast<int>(threadIdx.x) / split.lanes;
    step = ColumnSplit::threads / split.lanes;
    column = (static_cast<int>(blockIdx.x % columns_of) * split.lanes + lane) * split.width;
    row = chunk * split.chunk_rows + strip;
    end = min(split.rows, (chunk + 1) * split.chunk_rows);
    inside = column < split.columns && strip < step;
  }

  /// Of the next element, from the first matrix's beginning.
  __device__ std::int64_t offset(const ColumnSplit& split) const { return (matrix * split.rows + row) * split.columns + column; }
};

/// Neighbouring rows of a thread's columns, loaded together.
template <class T, int width, int count>
struct Rows {
  cuda::VectorWords<T, width> vectors[count];

  /// Those of row it.row and the next ones of the thread that are below it.end.
  __device__ void load(const T* matrices, const ColumnIterator& it, const ColumnSplit& split, bool aligned) {
    const T* memory = matrices + it.offset(split);
    const std::int64_t stride = it.step * split.columns;
#pragma unroll
    for (int i = 0; i < count; ++i, memory += stride) {
      if (it.row + static_cast<std::int64_t>(i) * it.step < it.end) vectors[i] = cuda::VectorWords<T, width>::load(memory, aligned);
    }
  }
  __device__ Computed<T> operator()(int i, int k) const { return convert<Computed<T>>(vectors[i][k]); }
};

/// What make(column) gives for each of a thread's columns, made once a block. All threads of the block take part.
template <int width, class Value, class Make>
__device__ void make_once(Value (&own)[width], const ColumnIterator& it, const ColumnSplit& split, const Make& make) {
  __shared__ Value shared[ColumnSplit::most_lanes * width];
  const int first = it.column - it.lane * width;
  for (int k = static_cast<int>(threadIdx.x); k < split.lanes * width && first + k < split.columns; k += ColumnSplit::threads) {
    shared[k] = make(first + k);
  }
  __syncthreads();
  if (!it.inside) return;
#pragma unroll
  for (int k = 0; k < width; ++k) own[k] = shared[it.lane * width + k];
}

/// Sums down columns: terms(add, own, it, split) calls add(k, sums) with sums of the elements of column k that a thread's iterator gives,
/// `own` being terms.column(matrix, column) of its columns; terms.finish(matrix, column, sums) has the last word on a block's sums. A thread
/// sums in registers for as long as that is exact enough, and in double in shared memory from there on. Writes 16 bytes a chunk and column.
/// Deterministic.
template <class Terms>
__global__ void __launch_bounds__(ColumnSplit::threads, 3)
    sum_columns(SumPair* partial /* (chunks, matrices, columns) */, Terms terms, ColumnSplit split) {
  constexpr int width = Terms::width;
  __shared__ SumPair shared[width][ColumnSplit::threads];  // (width, strips, lanes)
  const ColumnIterator it(split);
  typename Terms::Column own[width];
  make_once(own, it, split, [&](int column) { return terms.column(it.matrix, column); });
  const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int k = 0; k < width; ++k) shared[k][thread] = {};
  if (it.inside && it.row < it.end) terms([&](int k, const SumPair& sums) { shared[k][thread] = shared[k][thread] + sums; }, own, it, split);
  __syncthreads();
  for (int strips = it.step; strips > 1;) {
    const int half = (strips + 1) / 2;
    for (int item = thread; item < width * (strips - half) * split.lanes; item += ColumnSplit::threads) {
      const int k = item / ((strips - half) * split.lanes), place = item - k * (strips - half) * split.lanes;
      shared[k][place] = shared[k][place] + shared[k][place + half * split.lanes];
    }
    __syncthreads();
    strips = half;
  }
  const int first = it.column - it.lane * width;
  for (int item = thread; item < split.lanes * width && first + item < split.columns; item += ColumnSplit::threads) {
    const int column = first + item;
    partial[(static_cast<std::int64_t>(it.chunk) * split.matrices + it.matrix) * split.columns + column] =
        terms.finish(it.matrix, column, shared[item % width][item / width]);
  }
}

template <class Terms>
void launch_columns(SumPair* partial, const Terms& terms, const ColumnSplit& split, cudaStream_t stream) {
  if (split.columns == 0 || split.matrices == 0) return;
  cuda::launch(sum_columns<Terms>, split.shape(), stream, partial, terms, split);
}

/// Calls body.template operator()<width>() for the widest vectors that columns of elements of type T are made of.
template <class T, class Body>
void dispatch_column_width(const ColumnGeometry& g, const Body& body) {
  constexpr int width = cuda::vector_width<T>;
  g.columns % width == 0 ? body.template operator()<width>() : body.template operator()<1>();
}

}  // namespace frit::ops
