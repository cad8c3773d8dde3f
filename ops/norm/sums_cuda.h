#pragma once

#include "frit/core/cuda/team.h"
#include "frit/ops/norm/norm_core.h"

namespace frit::ops {

// The sums that the CUDA kernels of the norms are made of, where they pass through scratch memory. A thread sums a few elements in their
// own type; from there on sums are double, in an order that depends on shapes alone.

/// Two sums over a slice, or a part of one: of x - pivot and of its square, or of g and of g * xhat.
struct SumPair {
  double first, second;

  __device__ friend SumPair operator+(const SumPair& a, const SumPair& b) { return {a.first + b.first, a.second + b.second}; }
};

/// Blocks that fill any device twice over.
inline constexpr std::int64_t enough_blocks = 2112;

/// Parts in which blocks share each of `items` stretches of memory.
inline std::int64_t parts_of(std::int64_t items, std::int64_t elements) {
  constexpr std::int64_t least_elements = 8192;
  if (items == 0 || items >= enough_blocks / 2) return 1;
  return std::max<std::int64_t>(1, std::min((enough_blocks + items - 1) / items, elements / least_elements));
}

/// Partial sums of items: element (o, item, p) is the p-th of `inner` neighbours in the o-th of `outer` rounds.
struct PartialSums {
  SumPair* sums;  // (outer, items, inner)
  std::int64_t outer, items, inner;
};

/// One team an item: adds its partial sums, each multiplied by finish.weight(item, p), and hands them to finish(item, sums) in one thread.
/// Reads each sum once. Deterministic.
template <class Finish>
__global__ void finish_sums(Finish finish, PartialSums partial, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < partial.items; first += team.item_step()) {
    const std::int64_t item = first + team.place(), count = item < partial.items ? partial.outer * partial.inner : 0;
    SumPair sums{0, 0};
#pragma unroll 4
    for (std::int64_t i = team.rank(); i < count; i += team.size) {
      const std::int64_t o = i / partial.inner, p = i - o * partial.inner;
      const SumPair found = partial.sums[(o * partial.items + item) * partial.inner + p];
      const double weight = finish.weight(item, p);
      sums = sums + SumPair{weight * found.first, weight * found.second};
    }
    sums = team.sum(sums, shared);
    if (item < partial.items && team.rank() == 0) finish(item, sums);
  }
}

template <class Finish>
void launch_finish(const Finish& finish, const PartialSums& partial, cudaStream_t stream) {
  if (partial.items == 0) return;
  const cuda::TeamShape shape(partial.items, partial.outer * partial.inner, 4);
  cuda::launch(finish_sums<Finish>, shape.launch, stream, finish, partial, shape.team);
}

/// A slice's elements lie too far apart for teams of neighbouring threads: they are columns of a matrix (rows, channels * inner).
inline bool lies_in_columns(const NormGeometry& g) { return g.weight_axis == WeightAxis::slice && g.run_length < 8; }

/// Sums down the columns of a matrix (rows, columns), a few rows a thread: for slices whose elements lie a row apart.
struct ColumnSplit {
  static constexpr int warps = cuda::default_threads / cuda::warp_size;
  static constexpr int thread_rows = 16;

  std::int64_t rows, columns, chunks;

  ColumnSplit(std::int64_t rows_, std::int64_t columns_) : rows(rows_), columns(columns_) {
    const std::int64_t blocks = std::max<std::int64_t>(1, (columns + cuda::warp_size - 1) / cuda::warp_size);
    constexpr std::int64_t least_rows = warps * thread_rows;
    chunks = std::clamp<std::int64_t>((rows + least_rows - 1) / least_rows, 1, (enough_blocks + blocks - 1) / blocks);
  }
};

/// A block has a lane for every Terms::width columns and a warp for every few rows of a chunk; terms(sums, column, row, end, step) adds
/// rows row, row + step, ... below `end`. Reads what the terms read once and writes 16 bytes a chunk and column. Deterministic.
template <class Terms>
__global__ void sum_columns(SumPair* partial /* (chunks, columns) */, Terms terms, ColumnSplit split) {
  constexpr int warps = ColumnSplit::warps, block_columns = cuda::warp_size * Terms::width;
  __shared__ SumPair shared[warps][block_columns];
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * block_columns, column = first_column + lane * Terms::width;
  const std::int64_t chunk_rows = (split.rows + split.chunks - 1) / split.chunks, first_row = blockIdx.y * chunk_rows;
  SumPair sums[Terms::width] = {};
  if (column < split.columns) terms(sums, column, first_row + warp, min(split.rows, first_row + chunk_rows), warps);
#pragma unroll
  for (int k = 0; k < Terms::width; ++k) shared[warp][lane * Terms::width + k] = sums[k];
  __syncthreads();
  const int k = static_cast<int>(threadIdx.x);
  if (k >= block_columns || first_column + k >= split.columns) return;
  SumPair total = shared[0][k];
  for (int other = 1; other < warps; ++other) total = total + shared[other][k];
  partial[blockIdx.y * split.columns + first_column + k] = total;
}

template <class Terms>
void launch_columns(SumPair* partial, const Terms& terms, const ColumnSplit& split, cudaStream_t stream) {
  if (split.columns == 0) return;
  constexpr std::int64_t block_columns = cuda::warp_size * Terms::width;
  const auto blocks = static_cast<unsigned>((split.columns + block_columns - 1) / block_columns);
  const cuda::LaunchShape shape{dim3(blocks, static_cast<unsigned>(split.chunks)), dim3(cuda::default_threads)};
  cuda::launch(sum_columns<Terms>, shape, stream, partial, terms, split);
}

}  // namespace frit::ops
