#include "frit/core/io/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace frit {

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string checksum_text(std::uint64_t checksum) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[checksum >> shift & 15u];
  return text;
}

}  // namespace frit
