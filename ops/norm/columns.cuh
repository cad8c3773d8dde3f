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
    if (layout == Layout::channels_last) {
      if (batch) return ColumnGeometry{1, g.runs * g.run_length, g.slices, 1, 1};
      return ColumnGeometry{g.channels == 0 ? 0 : g.slices * g.runs / g.channels, g.run_length, g.channels, g.runs, 1};
    }
    if (batch && g.run_length > 0 && g.run_length < 8)
      return ColumnGeometry{1, g.runs, g.slices * g.run_length, g.run_length, g.run_length};
    return std::nullopt;
  }

  FRIT_HOST_DEVICE std::int64_t groups() const { return columns / group; }
  FRIT_HOST_DEVICE std::int64_t slice(std::int64_t matrix, std::int64_t column) const { return matrix * groups() + column / group; }
  FRIT_HOST_DEVICE std::int64_t channel(std::int64_t column) const { return column / channel_columns; }
  /// Where a slice begins, from the first matrix's beginning.
  FRIT_HOST_DEVICE std::int64_t first_of(std::int64_t slice) const { return slice / groups() * rows * columns + slice % groups() * group; }
  /// Sums of columns that a call keeps at a time, at most.
  std::int64_t most_sums() const;
};

/// How blocks share the matrices out: each has `lanes` vectors of columns of some rows of one.
struct ColumnSplit {
  static constexpr int threads = cuda::default_threads, least_blocks = 2 /* to a multiprocessor */, most_lanes = 64;

  std::int64_t rows, columns, matrices, chunks, column_blocks;
  int width, lanes;

  ColumnSplit(const ColumnGeometry& g, int width_) : rows(g.rows), columns(g.columns), matrices(g.matrices), width(width_) {
    // Enough blocks to fill a device, each with enough rows to outweigh what it begins and ends with.
    constexpr std::int64_t least_thread_rows = 16, most_blocks = 132 * 4;
    const std::int64_t vectors = std::max<std::int64_t>(1, columns / width);
    column_blocks = (vectors + most_lanes - 1) / most_lanes;
    lanes = static_cast<int>((vectors + column_blocks - 1) / column_blocks);
    const std::int64_t least_rows = threads / lanes * least_thread_rows, others = std::max<std::int64_t>(1, column_blocks * matrices);
    chunks = std::clamp<std::int64_t>((rows + least_rows - 1) / least_rows, 1, (most_blocks + others - 1) / others);
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
  std::int64_t matrix, chunk, column, row, end;
  int step, lane, strip;
  bool inside;  ///< the thread has columns

  __device__ explicit ColumnIterator(const ColumnSplit& split) {
    std::int64_t block = blockIdx.x;
    const std::int64_t column_block = block % split.column_blocks;
    block /= split.column_blocks;
    matrix = block % split.matrices;
    chunk = block / split.matrices;
    lane = static_cast<int>(threadIdx.x) % split.lanes;
    strip = static_cast<int>(threadIdx.x) / split.lanes;
    step = static_cast<int>(blockDim.x) / split.lanes;
    column = (column_block * split.lanes + lane) * split.width;
    const std::int64_t chunk_rows = (split.rows + split.chunks - 1) / split.chunks;
    row = chunk * chunk_rows + strip;
    end = min(split.rows, (chunk + 1) * chunk_rows);
    inside = column < split.columns && strip < step;
  }

  /// Of the next element, from the first matrix's beginning.
  __device__ std::int64_t offset(const ColumnSplit& split) const { return (matrix * split.rows + row) * split.columns + column; }
};

/// What make(column) gives for each of a thread's columns, made once a block. All threads of the block take part.
template <int width, class Value, class Make>
__device__ void make_once(Value (&own)[width], const ColumnIterator& it, const ColumnSplit& split, const Make& make) {
  __shared__ Value shared[ColumnSplit::most_lanes * width];
  const std::int64_t first = it.column - it.lane * width;
  for (int k = static_cast<int>(threadIdx.x); k < split.lanes * width && first + k < split.columns; k += ColumnSplit::threads) {
    shared[k] = make(first + k);
  }
  __syncthreads();
  if (!it.inside) return;
#pragma unroll
  for (int k = 0; k < width; ++k) own[k] = shared[it.lane * width + k];
}

/// Sums down columns: terms(sums, own, it, split) adds the elements that a thread's iterator gives, `own` being terms.column(matrix,
/// column) of its columns. Writes 16 bytes a chunk and column. Deterministic.
template <class Terms>
__global__ void __launch_bounds__(ColumnSplit::threads, ColumnSplit::least_blocks)
    sum_columns(SumPair* partial /* (chunks, matrices, columns) */, Terms terms, ColumnSplit split) {
  constexpr int width = Terms::width;
  __shared__ SumPair shared[ColumnSplit::threads * width];  // (strips, lanes, width)
  const ColumnIterator it(split);
  SumPair sums[width] = {};
  typename Terms::Column own[width];
  make_once(own, it, split, [&](std::int64_t column) { return terms.column(it.matrix, column); });
  if (it.inside) {
    if (it.row < it.end) terms(sums, own, it, split);
#pragma unroll
    for (int k = 0; k < width; ++k) shared[(it.strip * split.lanes + it.lane) * width + k] = sums[k];
  }
  __syncthreads();
  const int block_columns = split.lanes * width;
  const std::int64_t first = it.column - it.lane * width;
  for (int k = static_cast<int>(threadIdx.x); k < block_columns && first + k < split.columns; k += ColumnSplit::threads) {
    SumPair total = shared[k];
    for (int strip = 1; strip < it.step; ++strip) total = total + shared[strip * block_columns + k];
    partial[(it.chunk * split.matrices + it.matrix) * split.columns + first + k] = total;
  }
}

template <class Terms>
void launch_columns(SumPair* partial, const Terms& terms, const ColumnSplit& split, cudaStream_t stream) {
  if (split.columns == 0 || split.matrices == 0) return;
  cuda::launch(sum_columns<Terms>, split.shape(), stream, partial, terms, split);
}

/// Calls body.template operator()<width>() for the widest vectors that columns of elements of type T are made of: 4 elements, since with 8
/// what a thread knows of its channels takes so many registers that a multiprocessor holds one block.
template <class T, class Body>
void dispatch_column_width(const ColumnGeometry& g, const Body& body) {
  constexpr int width = std::min(cuda::vector_width<T>, 4);
  g.columns % width == 0 ? body.template operator()<width>() : body.template operator()<1>();
}

}  // namespace frit::ops
