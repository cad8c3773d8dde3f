#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace frit::ops::simd {

/// In bytes, the widest vectors of the processor that is compiled for, and the narrowest; and how many its register file holds.
inline constexpr int narrow_bytes = 16;
#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64, registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32, registers = 16;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16, registers = 32;
#else
inline constexpr int vector_bytes = 16, registers = 16;
#endif

template <class T, int bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};
template <class T>
using Vector = typename VectorOf<T, vector_bytes>::type;
template <class T>
using NarrowVector = typename VectorOf<T, narrow_bytes>::type;

template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

template <class T>
inline void store(T* to, Vector<T> value) {
  std::memcpy(to, &value, sizeof value);
}

/// The first `count` elements of a vector, fewer than it has, and zeros. No other is read.
template <class T>
inline Vector<T> load_first(const T* from, std::int64_t count) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (sizeof(T) == sizeof(float)) {
    return _mm512_maskz_loadu_ps(mask, from);
  } else {
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), from);
  }
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(T) == sizeof(float)) {
    const Vector<std::int32_t> lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return _mm256_maskload_ps(from, reinterpret_cast<__m256i>(lane < static_cast<std::int32_t>(count)));
  } else {
    const Vector<std::int64_t> lane = {0, 1, 2, 3};
    return _mm256_maskload_pd(from, reinterpret_cast<__m256i>(lane < count));
  }
#else
  Vector<T> result = {};
  std::memcpy(&result, from, static_cast<std::size_t>(count) * sizeof(T));
  return result;
#endif
}

/// Stores the first `count` elements alone, fewer than a vector has.
template <class T>
inline void store_first(T* to, Vector<T> value, std::int64_t count) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (sizeof(T) == sizeof(float)) {
    _mm512_mask_storeu_ps(to, mask, value);
  } else {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(mask), value);
  }
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(T) == sizeof(float)) {
    const Vector<std::int32_t> lane = {0, 1, 2, 3, 4, 5, 6, 7};
    _mm256_maskstore_ps(to, reinterpret_cast<__m256i>(lane < static_cast<std::int32_t>(count)), value);
  } else {
    const Vector<std::int64_t> lane = {0, 1, 2, 3};
    _mm256_maskstore_pd(to, reinterpret_cast<__m256i>(lane < count), value);
  }
#else
  std::memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(T));
#endif
}

/// Integers as wide as T.
template <class T>
using LaneNumber = std::conditional_t<sizeof(T) == sizeof(float), std::int32_t, std::int64_t>;
/// Whether the processor has an instruction for `shuffle`.
template <class T>
inline constexpr bool shuffles =
#if defined(__AVX512F__)
    true;
#elif defined(__AVX2__) && defined(__FMA__)
    sizeof(T) == sizeof(float);
#else
    false;
#endif

/// Lane i of the result is lane places[i] of x.
template <class T>
inline Vector<T> shuffle(Vector<T> x, Vector<LaneNumber<T>> places) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(float)) {
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(places), x);
  } else {
    return _mm512_permutexvar_pd(reinterpret_cast<__m512i>(places), x);
  }
#else
#if defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(T) == sizeof(float)) return _mm256_permutevar8x32_ps(x, reinterpret_cast<__m256i>(places));
#endif
  Vector<T> result;
  for (int i = 0; i < lanes<T>; ++i) result[i] = x[places[i]];
  return result;
#endif
}

template <class T>
inline Vector<T> broadcast(T value) {
  return value - Vector<T>{};  // unlike +, this keeps -0
}

/// a * b + c, rounded once where the processor can.
template <class V>
inline V multiply_add(V a, V b, V c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == sizeof(float)) {
    return _mm512_fmadd_ps(a, b, c);
  } else {
    return _mm512_fmadd_pd(a, b, c);
  }
#elif defined(__FMA__)
  if constexpr (sizeof(a[0]) == sizeof(float)) {
    return _mm256_fmadd_ps(a, b, c);
  } else {
    return _mm256_fmadd_pd(a, b, c);
  }
#else
  return a * b + c;
#endif
}

/// The products of the lower halves.
inline Vector<std::uint64_t> multiply_low(Vector<std::uint64_t> a, Vector<std::uint64_t> b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector<std::uint64_t>>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__) && defined(__FMA__)
  return reinterpret_cast<Vector<std::uint64_t>>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/// min(max(x, low), high) for low <= high, or NaN.
template <class T>
inline Vector<T> clamp(Vector<T> x, Vector<T> low, Vector<T> high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/// Says that a vector stays in a register, where the compiler would rather load it for each use: loads are what a product waits for.
template <class V>
[[gnu::always_inline]] inline void keep_in_register(V& vector) {
#if defined(__x86_64__)
  asm("" : "+v"(vector));
#elif defined(__aarch64__)
  asm("" : "+w"(vector));
#endif
}

}  // namespace frit::ops::simd
