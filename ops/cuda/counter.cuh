#pragma once

#include "frit/core/cuda/launch.cuh"
#include "frit/core/tensor.h"

namespace frit::ops {

/// One thread. A template, so that every file may hold it.
template <class Integer>
__global__ void advance_kernel(Integer* counter) {
  ++*counter;
}

/// Adds 1 to an i64 scalar in device memory.
inline void advance_counter(cudaStream_t stream, const Tensor& counter) {
  cuda::launch(advance_kernel<std::int64_t>, {.grid = 1, .block = 1}, stream, counter.data<std::int64_t>());
}

}  // namespace frit::ops
