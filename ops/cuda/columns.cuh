#pragma once

#include <algorithm>

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/cluster_barrier.cuh"
#include "frit/ops/cuda/computed.cuh"

namespace frit::ops {

// How CUDA kernels traverse matrices whose columns belong to results: matrices summed over their rows, and images in channels-last layout.
// A block has a thread for each vector of some neighbouring columns, as often as there is room for: so it reads whole stretches of memory,
// and a thread keeps what it needs of its columns.

/// Matrices of (rows, columns), one after the other.
struct Columns {
  std::int64_t matrices, rows, columns;

  static constexpr std::int64_t most_columns = INT32_MAX / 2;  ///< an int counts them on the device
  /// Sums of columns that a call keeps at a time, at most: of elements of any size.
  std::int64_t most_sums() const;
};

/// How blocks share the matrices out: each has `lanes` vectors of columns of some rows of one.
struct ColumnSplit {
  static constexpr int threads = cuda::default_threads, most_lanes = 32;
  /// Of a thread: few enough that it can sum them in their own type.
  static constexpr std::int64_t most_thread_rows = 64;
  /// Blocks of sums that a device holds at a time, and of others, which have nothing to hand on.
  static constexpr std::int64_t resident_blocks = 132 * 3, passing_blocks = 132 * 16;
  /// Columns of a block in a cluster: few, as their sums are exchanged in shared memory.
  static constexpr int most_cluster_columns = 32;

  std::int64_t rows, columns, matrices, chunks, column_blocks, chunk_rows;
  int width, lanes, step;  ///< `step` rows at once
  int cluster = 1;         ///< blocks next to each other that have the chunks of the same columns

  ColumnSplit() = default;
  ColumnSplit(const Columns& g, int width_, std::int64_t blocks_at_a_time = resident_blocks, std::int64_t lanes_at_most = most_lanes)
      : rows(g.rows), columns(g.columns), matrices(g.matrices), width(width_) {
    FRIT_CHECK(columns <= Columns::most_columns);
    const std::int64_t vectors = std::max<std::int64_t>(1, columns / width);
    column_blocks = ceil_divide(vectors, lanes_at_most);
    lanes = static_cast<int>(ceil_divide(vectors, column_blocks));
    step = threads / lanes;
    // As many blocks as fill a device once, or some times over, each with enough rows to outweigh what it begins and ends with.
    constexpr std::int64_t least_thread_rows = 8;
    const std::int64_t others = std::max<std::int64_t>(1, column_blocks * matrices);
    const std::int64_t at_a_time = std::max<std::int64_t>(1, blocks_at_a_time / others);
    const std::int64_t times = ceil_divide(rows, most_thread_rows * step * at_a_time);
    chunks = std::max<std::int64_t>(1, std::min(times * at_a_time, ceil_divide(rows, least_thread_rows * step)));
    chunk_rows = ceil_divide(rows, chunks);
  }

  /// All rows are shared by the blocks of a cluster.
  void share_rows(int blocks) {
    chunks = cluster = blocks;
    chunk_rows = ceil_divide(rows, chunks);
  }

  /// Of the totals that blocks write (write_block_total): the chunks of one column.
  ColumnSplit of_blocks() const {
    ColumnSplit result = *this;
    result.chunks = blocks();
    result.matrices = result.columns = 1;
    return result;
  }

  unsigned blocks() const { return static_cast<unsigned>(column_blocks * matrices * chunks); }
  cuda::LaunchShape shape() const { return {dim3(blocks()), dim3(threads)}; }
  /// That sum_columns writes.
  std::int64_t sums() const { return chunks * matrices * columns; }

 private:
  static std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
};

inline std::int64_t Columns::most_sums() const {
  std::int64_t sums = 0;
  for (int width = 1; width <= 8; width *= 2) sums = std::max(sums, ColumnSplit(*this, width).sums());
  return sums;
}

/// The part of a thread: column `column` and those that its vector has next to it, rows row, row + step, ... below `end` of a matrix.
struct ColumnIterator {
  std::int64_t row, end;
  int matrix, chunk, column, step, lane, strip;
  bool inside;  ///< the thread has columns

  /// `number`: of the block, among those of the split.
  __device__ explicit ColumnIterator(const ColumnSplit& split, unsigned number = blockIdx.x) {
    const auto columns_of = static_cast<unsigned>(split.column_blocks), matrices_of = static_cast<unsigned>(split.matrices);
    const auto cluster = static_cast<unsigned>(split.cluster), block = number / cluster, rest = block / columns_of;
    chunk = static_cast<int>(rest / matrices_of * cluster + number % cluster);
    matrix = static_cast<int>(rest % matrices_of);
    lane = static_cast<int>(threadIdx.x) % split.lanes;
    strip = static_cast<int>(threadIdx.x) / split.lanes;
    step = split.step;
    column = (static_cast<int>(block % columns_of) * split.lanes + lane) * split.width;
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

/// Several sums of a column.
template <int count>
struct ColumnTotals {
  double of[count] = {};

  ColumnTotals() = default;
  template <class C>
  __device__ explicit ColumnTotals(const C (&sums)[count]) {
#pragma unroll
    for (int v = 0; v < count; ++v) of[v] = static_cast<double>(sums[v]);
  }
  friend __device__ ColumnTotals operator+(ColumnTotals a, const ColumnTotals& b) {
#pragma unroll
    for (int v = 0; v < count; ++v) a.of[v] += b.of[v];
    return a;
  }
};

/// Sums down columns. Terms has
///   Computed; width                                        columns that a thread has
///   values; sum(sums, own, it, split)                      sums[v][k] of the elements of column k that a thread's iterator gives, `own`
///   Column column(matrix, column)                          being what this gives for its columns
///   Total; double base(matrix, column)                     what a column's strips, where it has any, need to become totals
///   Total total(sums, base, strip, split)                  of one column of a strip, the rows of a thread; `strip` is its iterator
/// A thread's sums pass through shared memory, so that all that happens in double is one short loop over the strips of a column: what runs
/// only once costs as much as its instructions take to load.
template <class Terms>
struct ColumnTotal {
  typename Terms::Total total{};
  int column;
  bool valid = false;  ///< for one thread a column of the block, its threads 0, 1, ...
  double base;

  /// Of the rows of a block, for all its threads.
  __device__ ColumnTotal(const Terms& terms, const ColumnIterator& it, const ColumnSplit& split) {
    using C = typename Terms::Computed;
    constexpr int width = Terms::width, values = Terms::values;
    __shared__ alignas(16) C strips[values][ColumnSplit::threads * width];  // (values, strips, columns of the block)
    __shared__ typename Terms::Total parts[ColumnSplit::threads];           // (parts of the strips, columns of the block)
    const auto thread = static_cast<int>(threadIdx.x);
    typename Terms::Column own[width];
    make_once(own, it, split, [&](int c) { return terms.column(it.matrix, c); });
    if (it.inside) {
      C sums[values][width] = {};
      terms.sum(sums, own, it, split);
#pragma unroll
      for (int v = 0; v < values; ++v) {
#pragma unroll
        for (int k = 0; k < width; ++k) strips[v][thread * width + k] = sums[v][k];
      }
    }
    // From here on neighbouring threads have neighbouring columns.
    const int columns = split.lanes * width, part_count = ColumnSplit::threads / columns, part = thread / columns;
    column = it.column - it.lane * width + thread % columns;
    const bool has_column = part < part_count && column < split.columns;
    base = has_column && split.rows > 0 ? terms.base(it.matrix, column) : 0;
    __syncthreads();

    if (has_column) {
      ColumnIterator strip = it;
      strip.column = column;
      strip.row += part - it.strip;
      const std::int64_t end_of_strips = min(it.end, it.row - it.strip + it.step);
      int item = thread;
#pragma unroll 1
      for (; strip.row < end_of_strips; strip.row += part_count, item += part_count * columns) {
        C found[values];
#pragma unroll
        for (int v = 0; v < values; ++v) found[v] = strips[v][item];
        total = total + terms.total(found, base, strip, split);
      }
    }
#pragma unroll 1
    for (int left = part_count; left > 1;) {
      const int half = (left + 1) / 2;
      parts[thread] = total;
      __syncthreads();
      if (part < left - half) total = total + parts[thread + half * columns];
      __syncthreads();
      left = half;
    }
    valid = part == 0 && has_column;
  }
};

/// By all threads, where split.cluster blocks have the chunks of the same columns: the totals of all chunks, added in their order, where
/// `found` is valid. leave_cluster() follows before the block ends: the others read its totals. Deterministic.
template <class Terms>
__device__ typename Terms::Total total_of_cluster(const ColumnTotal<Terms>& found, const ColumnSplit& split) {
  using Total = typename Terms::Total;
  if (split.cluster == 1) return found.total;
  static_assert(sizeof(Total) % sizeof(double) == 0, "exchanged as doubles");
  constexpr int numbers = sizeof(Total) / sizeof(double);
  __shared__ Total exchanged[ColumnSplit::most_cluster_columns];
  if (found.valid) exchanged[threadIdx.x] = found.total;
  cuda::cluster_arrive();
  cuda::cluster_wait();
  Total total{};
  if (found.valid) {
    Total parts[cuda::most_cluster_blocks];
#pragma unroll
    for (int block = 0; block < cuda::most_cluster_blocks; ++block) {
      if (block >= split.cluster) continue;
      const auto* const from = reinterpret_cast<const double*>(exchanged + threadIdx.x);
      auto* const to = reinterpret_cast<double*>(parts + block);
#pragma unroll
      for (int i = 0; i < numbers; ++i) to[i] = cuda::load_of_block(from + i, block);
    }
    total = parts[0];
#pragma unroll
    for (int block = 1; block < cuda::most_cluster_blocks; ++block) {
      if (block < split.cluster) total = total + parts[block];
    }
  }
  cuda::cluster_arrive();
  return total;
}
__device__ inline void leave_cluster(const ColumnSplit& split) {
  if (split.cluster > 1) cuda::cluster_wait();
}

/// Writes a total a chunk and column, or, where `partial` is null, calls terms.finish(place, total) for each place (matrix, column).
/// Deterministic.
template <class Terms>
__device__ void write_column_sums(typename Terms::Total* partial /* (chunks, matrices, columns) */, const Terms& terms,
                                  const ColumnSplit& split, unsigned block = blockIdx.x) {
  const ColumnIterator it(split, block);
  const ColumnTotal<Terms> sum(terms, it, split);
  if (!sum.valid) return;
  const std::int64_t place = (static_cast<std::int64_t>(it.chunk) * split.matrices + it.matrix) * split.columns + sum.column;
  if constexpr (requires { terms.finish(place, sum.total); }) {
    if (partial == nullptr) return terms.finish(place, sum.total);
  }
  partial[place] = sum.total;
}
/// Likewise a total a block, of all its columns, or, where there is one block, terms.finish(0, total).
template <class Terms>
__device__ void write_block_total(typename Terms::Total* partial /* (blocks) */, const Terms& terms, const ColumnSplit& split) {
  using Total = typename Terms::Total;
  __shared__ Total of_warps[cuda::warp_size];
  const ColumnTotal<Terms> sum(terms, ColumnIterator(split), split);
  const Total total = cuda::block_reduce(sum.valid ? sum.total : Total{}, of_warps);
  if (threadIdx.x != 0) return;
  if (partial == nullptr) return terms.finish(0, total);
  partial[blockIdx.x] = total;
}
template <class Terms>
__global__ void __launch_bounds__(ColumnSplit::threads, 3) sum_columns(typename Terms::Total* partial, Terms terms, ColumnSplit split) {
  write_column_sums(partial, terms, split);
}

template <class Terms>
void launch_columns(typename Terms::Total* partial, const Terms& terms, const ColumnSplit& split, cudaStream_t stream) {
  if (split.columns == 0 || split.matrices == 0) return;
  cuda::launch(sum_columns<Terms>, split.shape(), stream, partial, terms, split);
}

/// Calls body.template operator()<width>() for the widest vectors that columns of elements of type T are made of.
template <class T, class Body>
void dispatch_column_width(const Columns& g, const Body& body) {
  constexpr int width = cuda::vector_width<T>;
  g.columns % width == 0 ? body.template operator()<width>() : body.template operator()<1>();
}

}  // namespace frit::ops
