#pragma once

#include <cuda_runtime.h>

namespace frit::cuda {

/// Starts a copy of 16 aligned bytes from global to shared memory, past the registers and the nearest cache.
__device__ inline void copy_16_bytes(void* to, const void* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(__cvta_generic_to_global(from)) : "memory");
}
/// Likewise 4 or 8 aligned bytes.
template <int bytes>
__device__ inline void copy_bytes(void* to, const void* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(__cvta_generic_to_global(from)), "n"(bytes) : "memory");
}
/// Until the calling thread's copies are there; other threads see them after a barrier.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ inline void prefetch_to_l2(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from))); }

}  // namespace frit::cuda
