#pragma once

#include <type_traits>

namespace frit::ops {

/// The greater (or lesser) of two numbers, NaN if one of them is; of zeros, either. NVRTC compiles this header too.
template <bool greatest, class T>
__device__ T extreme(T a, T b) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    float result;
    if constexpr (greatest) {
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    } else {
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    }
    return result;
  }
#endif
  const bool second = b != b || (greatest ? b > a : b < a);
  return second ? b : a;
}

}  // namespace frit::ops
