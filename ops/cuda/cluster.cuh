#pragma once

#include <utility>

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/cluster_barrier.cuh"
#include "frit/ops/cuda/phase_barrier.cuh"

namespace frit::cuda {

// Thread-block clusters, of compute capability 9.0: blocks that run at the same time, can write into each other's shared memory, and whose
// shared memory the copy engine fills. The device functions do nothing for older architectures, where no such kernel is ever launched.

namespace detail {

/// In clusters of `blocks` blocks along the first axis of the grid, which is a multiple of it.
struct ClusterLaunch {
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};

  ClusterLaunch(const LaunchShape& shape, int blocks, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  /// As many blocks of the kernel to a multiprocessor as its whole memory has room for.
  void share_memory(const void* kernel) const {
    FRIT_CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(config.dynamicSmemBytes)));
    FRIT_CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};

}  // namespace detail

/// How many clusters of `blocks` blocks the device runs at a time; 0 if it cannot run them.
template <class... Parameters>
int resident_clusters(void (*kernel)(Parameters...), LaunchShape shape, int blocks) {
  shape.grid = dim3(static_cast<unsigned>(blocks));
  const detail::ClusterLaunch launch(shape, blocks, nullptr);
  launch.share_memory(reinterpret_cast<const void*>(kernel));
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch.config) == cudaSuccess) return clusters;
  (void)cudaGetLastError();
  return 0;
}

/// As `launch`, in clusters.
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), const LaunchShape& shape, int blocks, cudaStream_t stream, Arguments&&... arguments) {
  const detail::ClusterLaunch launch(shape, blocks, stream);
  launch.share_memory(reinterpret_cast<const void*>(kernel));
  FRIT_CUDA_CALL(cudaLaunchKernelEx(&launch.config, kernel, std::forward<Arguments>(arguments)...));
}

/// A kernel that has no dynamic shared memory, with pointers to its arguments as cudaLaunchKernel takes them, in clusters if `blocks` is
/// more than one. The caches keep their memory.
inline void launch_clusters(const void* kernel, const LaunchShape& shape, int blocks, cudaStream_t stream, const void* const* arguments) {
  detail::ClusterLaunch launch(shape, blocks, stream);
  launch.config.numAttrs = blocks > 1 ? 1 : 0;
  FRIT_CUDA_CALL(cudaLaunchKernelExC(&launch.config, kernel, const_cast<void**>(arguments)));
}

/// In shared memory: counts the bytes that were announced and have come, by the copy engine or from the cluster's other blocks. Its phases
/// follow each other; a wait names the parity of the phase's number. Copies may come before they are expected, but not before the last
/// phase is over.
class ByteBarrier {
 public:
  /// By one thread, before a barrier of the block, or of the cluster where other blocks send.
  __device__ void init() { phases().init(1); }
  /// By one thread, once a phase.
  __device__ void expect(unsigned bytes) { phases().arrive_expecting(static_cast<int>(bytes)); }
  /// Starts a copy from global to shared memory: both addresses and the number of bytes are multiples of 16.
  __device__ void copy(void* to, const void* from, unsigned bytes) { phases().copy(shared_address(to), from, static_cast<int>(bytes)); }
  /// Sends a number to the place of the cluster's block `block` that `place` is in this one; this barrier's place there counts it.
  __device__ void send(double* place, int block, double value) {
#if __CUDA_ARCH__ >= 900
    unsigned address, barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(place)), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(this)), "r"(block));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f64 [%0], %1, [%2];" ::"r"(address), "d"(value), "r"(barrier)
                 : "memory");
#endif
  }
  /// By any thread: until the phase is over. What came in it is then seen.
  __device__ void wait(unsigned parity) { phases().wait(parity); }

 private:
  __device__ PhaseBarrier phases() const { return {shared_address(this)}; }

  unsigned long long state_;
};

}  // namespace frit::cuda
