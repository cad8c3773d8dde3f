#pragma once

#include <bit>
#include <cstdint>

/// Marks a function that CPU kernels and CUDA kernels share.
#ifdef __CUDACC__
#define FRIT_HOST_DEVICE __host__ __device__
#else
#define FRIT_HOST_DEVICE
#endif

namespace frit {

/// IEEE binary16 storage. Converts to and from float, rounding to nearest even; NaN stays NaN, overflow becomes infinity.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  FRIT_HOST_DEVICE explicit Half(float value) : bits(encode(value)) {}
  FRIT_HOST_DEVICE explicit operator float() const { return decode(bits); }

  FRIT_HOST_DEVICE static std::uint16_t encode(float value) {
#ifdef __CUDA_ARCH__
    std::uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and above
    if (magnitude >= 0x38800000u) {                                                   // normal; 65520 and above carries into infinity
      const std::uint32_t rounded = magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - 0x38000000u;
      return static_cast<std::uint16_t>(sign | (rounded >> 13));
    }
    // Subnormal: adding 0.5 puts the half's unit in the last place at the float's, so the FPU rounds for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
#endif
  }

  FRIT_HOST_DEVICE static float decode(std::uint16_t half) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
    return wide;
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
#endif
  }
};

/// bfloat16 storage: the upper half of a float, rounded to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  FRIT_HOST_DEVICE explicit BFloat16(float value) : bits(encode(value)) {}
  FRIT_HOST_DEVICE explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  FRIT_HOST_DEVICE static std::uint16_t encode(float value) {
#ifdef __CUDA_ARCH__
    std::uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x40u);
    return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
  }
};

}  // namespace frit
