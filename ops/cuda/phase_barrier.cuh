#pragma once

#include <cstdint>

namespace frit::cuda {

/// A barrier in shared memory, at this address, where some threads arrive and others wait: it is in phase 0 first, and in the next one
/// when as many threads have arrived as were told. From compute capability 9.0 on. What a thread wrote before it arrived is seen by those
/// that waited for it.
struct PhaseBarrier {
  static constexpr int bytes = 8;
  std::uint32_t address;

  /// By one thread, before a barrier of the block.
  __device__ void init(int arrivals) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __device__ void arrive() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(address) : "memory");
#endif
  }
  /// Likewise; the phase then ends when so many bytes more have come, too.
  __device__ void arrive_expecting(int bytes_to_come) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes_to_come) : "memory");
#endif
  }
  /// Has the copy engine bring bytes from global memory to an address of shared memory, and count them: all are multiples of 16.
  __device__ void copy(std::uint32_t to, const void* from, int count) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(count), "r"(address)
                 : "memory");
#endif
  }
  /// When the calling thread's copies (cuda::copy_bytes) so far are there.
  __device__ void arrive_after_copies() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
#endif
  }
  /// Until the phase of this parity is over; at once for the one before phase 0.
  __device__ void wait(unsigned parity) const {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(address),
        "r"(parity)
        : "memory");
#endif
  }
};

}  // namespace frit::cuda
