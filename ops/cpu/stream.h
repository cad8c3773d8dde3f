#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace frit::ops {

/// What no cache holds until it is read.
inline constexpr std::int64_t streamed_bytes = std::int64_t{32} << 20;

/// Copies past the caches, where the processor can: the destination is not read before it is written.
inline void stream(std::byte* to, const std::byte* from, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__SSE2__)
  constexpr std::int64_t width = sizeof(__m128i);
  i = std::min(count, (width - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % width)) % width);
  std::copy_n(from, i, to);
  for (; i + width <= count; i += width) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#endif
  std::copy(from + i, from + count, to + i);
}

/// Others may read what was streamed from now on.
inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace frit::ops
