#pragma once

#include <optional>
#include <span>

#include "frit/ops/cuda/columns.cuh"
#include "frit/ops/cuda/reduce_plan.cuh"

namespace frit::ops {

// Sums of floating-point lines that are columns of matrices: of biases' gradients over the rows of a batch, of images in channels-last
// layout over their pixels.

/// Lines as the columns of matrices whose order is that of the results; none if they are not, or too short to be worth it.
inline std::optional<Columns> columns_of(const Lines& lines) {
  constexpr std::int64_t few_elements = 1 << 19, few_rows = 64;
  const std::int64_t rows = lines.count(), results = lines.results();
  if (lines.along_memory() || rows < 2 || results == 0) return std::nullopt;
  const std::int64_t columns = lines.reduced_strides.back(), matrix = lines.reduced_strides[0] * lines.reduced[0];
  if (columns > Columns::most_columns || matrix != rows * columns || (rows < few_rows && rows * results > few_elements))
    return std::nullopt;
  std::int64_t place = 1;
  for (int axis = lines.kept.rank() - 1; axis >= 0; --axis) {
    if (lines.result_strides[axis] != place) return std::nullopt;
    place *= lines.kept[axis];
  }
  return Columns{results / columns, rows, columns};
}

/// y = sum / divisor down the columns of x. A thread sums its rows in their own type; from there on sums are double.
template <class T, int width_>
struct DividedColumnSums {
  using Computed = ops::Computed<T>;
  using Total = double;
  static constexpr int width = width_, values = 1;
  static constexpr int rows_at_once = 8;

  T* y;        // (matrices, columns)
  const T* x;  // (matrices, rows, columns)
  double divisor;
  bool aligned;

  struct Column {};
  __device__ Column column(int, int) const { return {}; }
  __device__ double base(int, int) const { return 0; }

  __device__ void sum(Computed (&sums)[values][width], const Column (&)[width], ColumnIterator it, const ColumnSplit& split) const {
    while (it.row < it.end) {
      Rows<T, width, rows_at_once> rows;
      rows.load(x, it, split, aligned);
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
        if (it.row >= it.end) continue;
#pragma unroll
        for (int k = 0; k < width; ++k) sums[0][k] += rows(i, k);
      }
    }
  }
  __device__ double total(const Computed (&sums)[values], double, const ColumnIterator&, const ColumnSplit&) const {
    return static_cast<double>(sums[0]);
  }
  __device__ void finish(std::int64_t place, double sum) const { y[place] = convert<T>(sum / divisor); }
};

inline constexpr int finish_columns = 16, finish_parts = 16;

/// A row of threads a part of the chunks, a column a result. Deterministic.
template <class Terms>
__device__ void finish_block_of_sums(const double* partial /* (chunks, results) */, const Terms& terms, int chunks, std::int64_t results,
                                     unsigned block) {
  __shared__ double shared[finish_parts][finish_columns];
  const int column = static_cast<int>(threadIdx.x) % finish_columns, part = static_cast<int>(threadIdx.x) / finish_columns;
  const std::int64_t place = static_cast<std::int64_t>(block) * finish_columns + column;
  double sum = 0;
  if (place < results) {
#pragma unroll 8
    for (int chunk = part; chunk < chunks; chunk += finish_parts) sum += partial[chunk * results + place];
  }
  shared[part][column] = sum;
  __syncthreads();
  if (part != 0 || place >= results) return;
#pragma unroll
  for (int other = 1; other < finish_parts; ++other) sum += shared[other][column];
  terms.finish(place, sum);
}
template <class Terms>
__global__ void __launch_bounds__(finish_columns* finish_parts)
    finish_column_sums(const double* partial, Terms terms, int chunks, std::int64_t results) {
  finish_block_of_sums(partial, terms, chunks, results, blockIdx.x);
}

/// The split of sums of columns: few rows are not cut, but their columns are shared by more blocks, so that one launch does it all.
inline ColumnSplit split_sums(const Columns& g, int width, std::size_t element_size) {
  constexpr std::int64_t thread_rows = 16, enough_blocks = 264, sector = 32;
  const std::int64_t sector_lanes = sector / (width * static_cast<std::int64_t>(element_size));
  const std::int64_t wanted = g.columns / width * g.matrices / enough_blocks;
  // Half sectors, if there are so few: their other halves are in the cache.
  for (const std::int64_t least : {sector_lanes, sector_lanes / 2}) {
    const std::int64_t lanes = std::clamp<std::int64_t>(wanted, least, ColumnSplit::most_lanes);
    if (g.rows <= thread_rows * (ColumnSplit::threads / lanes)) return ColumnSplit(g, width, /*blocks_at_a_time=*/1, lanes);
  }
  return ColumnSplit(g, width);
}

inline unsigned finish_blocks(std::int64_t results) { return static_cast<unsigned>((results + finish_columns - 1) / finish_columns); }

/// Makes results of the sums of chunks, `values` of each column.
template <class Terms>
void finish_sums(const double* partial, const Terms& terms, const ColumnSplit& split, cudaStream_t stream, int values = 1) {
  const std::int64_t results = split.matrices * split.columns * values;
  cuda::launch(finish_column_sums<Terms>, {dim3(finish_blocks(results)), dim3(finish_columns * finish_parts)}, stream, partial, terms,
               static_cast<int>(split.chunks), results);
}

/// Where the sums of chunks are, if there are several; `scratch` has column_sums_scratch(g) bytes.
inline double* partial_sums(const ColumnSplit& split, std::span<std::byte> scratch) {
  if (split.chunks == 1) return nullptr;
  FRIT_CHECK(scratch.size() >= static_cast<std::size_t>(split.sums()) * sizeof(double));
  return reinterpret_cast<double*>(scratch.data());
}

inline std::size_t column_sums_scratch(const Columns& g) { return static_cast<std::size_t>(g.most_sums()) * sizeof(double); }

}  // namespace frit::ops
