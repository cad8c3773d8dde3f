// Data to time work on.

#include "frit/core/convert.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/noise.h"

namespace frit::cuda {
namespace {

/// SplitMix64's number i (G. Steele et al., "Fast splittable pseudorandom number generators", 2014).
__device__ std::uint64_t split_mix(std::uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  i = (i ^ (i >> 30)) * 0xBF58476D1CE4E5B9u;
  i = (i ^ (i >> 27)) * 0x94D049BB133111EBu;
  return i ^ (i >> 31);
}

/// One thread an element. Writes each once. Deterministic.
template <class T>
__global__ void noise_kernel(T* data, std::int64_t count) {
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const auto bits = static_cast<std::int32_t>(split_mix(static_cast<std::uint64_t>(i)));
    data[i] = convert<T>(static_cast<float>(bits >> 8) * 0x1p-23f);
  }
}

}  // namespace

void fill_with_noise(const Tensor& tensor) {
  FRIT_CHECK(is_floating(tensor.dtype()) && (tensor.is_contiguous() || tensor.is_contiguous(Layout::channels_last)));
  if (tensor.elements() == 0) return;
  dispatch_all(tensor.dtype(), [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      launch(noise_kernel<T>, loop_shape(tensor.elements()), compute_stream(tensor.device().index), tensor.data<T>(), tensor.elements());
    }
  });
}

}  // namespace frit::cuda
