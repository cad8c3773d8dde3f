#pragma once

#include "frit/core/convert.h"
#include "frit/core/cuda/launch.cuh"

namespace frit::ops {

/// Of an item of a block's sums (rows, columns), in a weight of fewer columns; -1 in a column that it does not have.
struct WeightPlace {
  int columns, used_columns;

  FRIT_HOST_DEVICE std::int64_t operator()(int item) const {
    const int row = item / columns, column = item % columns;
    return column < used_columns ? row * used_columns + column : -1;
  }
};

/// Writes a block's sums of some items. add(turn, sums) adds what some warps have: in turns, so that the order is always the same.
template <class Add>
__device__ void put_partials(float* partials /* of the block */, float* sums /* in shared memory */, int items, int turns, const Add& add) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  __syncthreads();
  for (int i = thread; i < items; i += threads) sums[i] = 0;
  for (int turn = 0; turn < turns; ++turn) {
    __syncthreads();
    add(turn, sums);
  }
  __syncthreads();
  for (int i = thread; i < items; i += threads) partials[i] = sums[i];
}

inline constexpr int sum_parts = 8, partial_threads = 256;

/// A row of threads a part of the blocks, a column a sum. Deterministic.
template <class Stored, class Place>
__global__ void __launch_bounds__(partial_threads)
    sum_partials_kernel(Stored* sums, const float* partials /* (blocks, items) */, int blocks, int items, Place place) {
  __shared__ float shared[partial_threads];
  const int columns = static_cast<int>(blockDim.x), parts = static_cast<int>(blockDim.y);
  const int column = static_cast<int>(threadIdx.x), part = static_cast<int>(threadIdx.y);
  const int item = static_cast<int>(blockIdx.x) * columns + column;
  float sum = 0;
  if (item < items) {
#pragma unroll 8
    for (int block = part; block < blocks; block += parts) sum += partials[static_cast<std::int64_t>(block) * items + item];
  }
  shared[part * columns + column] = sum;
  __syncthreads();
  if (part != 0 || item >= items) return;
  for (int other = 1; other < parts; ++other) sum += shared[other * columns + column];
  if (const std::int64_t to = place(item); to >= 0) sums[to] = convert<Stored>(sum);
}

/// Adds up what each block has of some items: sums[place(item)] = sum over blocks, of those with a place from 0 on.
template <class Stored, class Place>
void sum_partials(Stored* sums, const float* partials, int blocks, int items, const Place& place, cudaStream_t stream) {
  // So many sums keep the device busy without parts.
  constexpr int many = 1 << 17;
  const int parts = blocks > sum_parts && items < many ? sum_parts : 1, columns = partial_threads / parts;
  cuda::launch(
      sum_partials_kernel<Stored, Place>,
      {dim3(static_cast<unsigned>((items + columns - 1) / columns)), dim3(static_cast<unsigned>(columns), static_cast<unsigned>(parts))},
      stream, sums, partials, blocks, items, place);
}

}  // namespace frit::ops
