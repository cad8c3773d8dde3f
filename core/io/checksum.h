#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace frit {

/// XXH3, 64 bits: what `xxhsum -H3` and Python's xxhash.xxh3_64 give. `seed` chains parts.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// Sixteen hexadecimal digits.
std::string checksum_text(std::uint64_t checksum);

}  // namespace frit
