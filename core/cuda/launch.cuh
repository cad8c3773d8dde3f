#pragma once

#include <algorithm>
#include <cstdint>

#include "frit/core/cuda/runtime.h"

namespace frit::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

inline constexpr int default_threads = 256;

/// Threads for a loop over `items` with a grid stride: enough blocks to fill any device, few enough to be cheap to start.
inline LaunchShape loop_shape(std::int64_t items, int threads = default_threads) {
  constexpr std::int64_t most_blocks = 132 * 32;
  const std::int64_t blocks = std::clamp<std::int64_t>((items + threads - 1) / threads, 1, most_blocks);
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads))};
}

/// Before a launch of `kernel` with so many bytes of shared memory: more than 48 KiB have to be asked for.
inline void allow_shared_memory(const void* kernel, std::size_t bytes) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes <= without_asking) return;
  FRIT_CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

/// The one way in which kernels are started. Throws ErrorKind::device if the launch is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream, Arguments&&... arguments) {
  allow_shared_memory(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
  kernel<<<shape.grid, shape.block, shape.shared_bytes, stream>>>(std::forward<Arguments>(arguments)...);
  FRIT_CUDA_CALL(cudaGetLastError());
}

/// The loop that goes with `loop_shape`: i = first_item(); i < items; i += item_step().
__device__ inline std::int64_t first_item() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline std::int64_t item_step() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

}  // namespace frit::cuda
