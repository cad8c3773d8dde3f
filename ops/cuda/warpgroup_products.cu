#include "frit/core/cuda/launch.cuh"
#include "frit/ops/cuda/warpgroup_products.cuh"

namespace frit::warpgroup {
namespace {

constexpr int threads_with = 64, threads_without = 32;

/// Never runs: the most threads that it may have tell for which architecture the code that is loaded was compiled.
__global__ void __launch_bounds__(FRIT_HAS_WARPGROUP_PRODUCTS ? threads_with : threads_without) probe() {}

}  // namespace

bool available(int device) {
  if (cuda::properties(device).capability != capability) return false;
  static const bool compiled = [] {
    cudaFuncAttributes attributes;
    FRIT_CUDA_CALL(cudaFuncGetAttributes(&attributes, probe));
    return attributes.maxThreadsPerBlock == threads_with;
  }();
  return compiled;
}

}  // namespace frit::warpgroup
