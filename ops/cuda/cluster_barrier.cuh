#pragma once

#include <cstdint>

#include "frit/core/cuda/vector.cuh"

// What the blocks of a cluster do together, for kernels that NVRTC compiles too. The functions do nothing for architectures before compute
// capability 9.0, where no such kernel is ever launched.

namespace frit::cuda {

inline constexpr int most_cluster_blocks = 8;

/// By all threads of all blocks of the cluster: what was written before `arrive` is seen after `wait`, when all blocks are running.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// The number that the cluster's block `block` has where this one has `place`, in shared memory.
__device__ inline double load_of_block([[maybe_unused]] const double* place, [[maybe_unused]] int block) {
  double value = 0;
#if __CUDA_ARCH__ >= 900
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(place)), "r"(block));
  asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(address) : "memory");
#endif
  return value;
}

}  // namespace frit::cuda
