#pragma once

#include <cstddef>
#include <cstdint>

namespace frit::ops {

/// Brings bytes that are read soon to a cache that is larger than the nearest, which holds what is read now.
inline void prefetch(const void* from, std::int64_t bytes) {
  constexpr std::int64_t line = 64;
  for (std::int64_t i = 0; i < bytes; i += line) __builtin_prefetch(static_cast<const std::byte*>(from) + i, 0, 2);
}

}  // namespace frit::ops
