#pragma once

#include <cuda_runtime.h>

#include "frit/core/cuda/vector.cuh"

namespace frit::cuda {

/// Starts a copy of 4, 8 or 16 aligned bytes from global memory to an address of shared memory; 16 go past the nearest cache.
template <int bytes>
__device__ inline void copy_bytes(std::uint32_t to, const void* from) {
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "n"(bytes) : "memory");
  }
}
template <int bytes>
__device__ inline void copy_bytes(void* to, const void* from) {
  copy_bytes<bytes>(shared_address(to), from);
}
__device__ inline void copy_16_bytes(void* to, const void* from) { copy_bytes<16>(to, from); }
/// Likewise, or so many zeros.
template <int bytes>
__device__ inline void copy_bytes_or_zeros(std::uint32_t to, const void* from, bool present) {
  const int taken = present ? bytes : 0;
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(taken) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "n"(bytes), "r"(taken)
                 : "memory");
  }
}
/// The calling thread's copies since the last time are a group.
__device__ inline void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until no more than the last `groups` of the calling thread's groups are under way.
template <int groups>
__device__ inline void wait_for_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
/// Until the calling thread's copies are there; other threads see them after a barrier.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ inline void prefetch_to_l2(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from))); }

}  // namespace frit::cuda
