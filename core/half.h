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

#ifndef __CUDA_ARCH__
namespace detail {

/// As a mask: a loop over what has branches, or chooses between numbers that it computes as floats, does not become vector code.
FRIT_HOST_DEVICE constexpr std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

}  // namespace detail
#endif

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
    const std::uint32_t bounded = detail::choose(magnitude < 0x47800000u, magnitude, 0x47800000u);  // 65536, the pattern of infinity
    // 65520 and above carries into infinity.
    const std::uint32_t normal = (bounded + 0x0fffu + ((bounded >> 13) & 1u) - 0x38000000u) >> 13;
    // Subnormal: adding 0.5 puts the half's unit in the last place at the float's, so the FPU rounds for us.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(bounded) + 0.5f) - 0x3f000000u;
    const std::uint32_t number = detail::choose(bounded >= 0x38800000u, normal, subnormal);
    const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    return static_cast<std::uint16_t>(sign | detail::choose(magnitude > 0x7f800000u, nan, number));
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
    const std::uint32_t normal = (magnitude << 13) + detail::choose(magnitude >= 0x7c00u, 0x70000000u, 0x38000000u);
    const std::uint32_t quiet = detail::choose(magnitude > 0x7c00u, 0x400000u, 0);  // a NaN, as processors make it
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    return std::bit_cast<float>(sign | quiet | detail::choose(magnitude < 0x0400u, std::bit_cast<std::uint32_t>(subnormal), normal));
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
