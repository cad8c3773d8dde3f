#pragma once

#include <cuda_runtime.h>

// Reductions over the lanes of a warp and the threads of a block. The order of the combinations depends on the block's size alone, so that
// a result has the same bits at every run.

namespace frit::cuda {

inline constexpr int warp_size = 32;

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <class T>
__device__ T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) % 4 == 0, "shuffled in 32-bit words");
  unsigned words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (unsigned& word : words) word = __shfl_xor_sync(0xffffffffu, word, mask);
  memcpy(&value, words, sizeof(T));
  return value;
}

/// Every lane of a full warp gets the combination of all lanes' values. `combine` must be commutative.
template <class T, class Combine = Plus>
__device__ T warp_reduce(T value, Combine combine = {}) {
#pragma unroll
  for (int mask = warp_size / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

/// Every thread of a one-dimensional block, a multiple of 32 threads and at most 1024, gets the combination of all threads' values.
/// `shared` holds 32 elements, and may be used again at once. `neutral` does not change what it is combined with.
template <class T, class Combine = Plus>
__device__ T block_reduce(T value, T* shared, Combine combine = {}, T neutral = T{}) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  value = warp_reduce(value, combine);
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return warp_reduce(lane < warps ? shared[lane] : neutral, combine);
}

}  // namespace frit::cuda
