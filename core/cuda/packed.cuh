#pragma once

#include "frit/core/half.h"

namespace frit::cuda {

/// Two halves in a word, the first in its low bits, in single instructions.
template <class Stored>
struct Packed;

template <>
struct Packed<Half> {
  __device__ static float2 widen(std::uint32_t word) {
    float2 result;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(result.x), "=f"(result.y)
        : "r"(word));
    return result;
  }
  __device__ static std::uint32_t narrow(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  /// NaNs aside.
  __device__ static std::uint32_t greater(std::uint32_t a, std::uint32_t b) {
    std::uint32_t word;
    asm("max.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
    return word;
  }
};

template <>
struct Packed<BFloat16> {
  __device__ static float2 widen(std::uint32_t word) { return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)}; }
  __device__ static std::uint32_t narrow(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  /// NaNs aside.
  __device__ static std::uint32_t greater(std::uint32_t a, std::uint32_t b) {
    std::uint32_t word;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
    return word;
  }
};

}  // namespace frit::cuda
