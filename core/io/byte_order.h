#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace frit {

static_assert(std::endian::native == std::endian::little, "file formats are read and written on little-endian machines only");

/// Reverses the bytes of every element.
inline void swap_bytes(std::span<std::byte> bytes, std::size_t element_size) {
  if (element_size == 1) return;
  const auto step = static_cast<std::ptrdiff_t>(element_size);
  for (auto place = bytes.begin(); place != bytes.end(); place += step) std::reverse(place, place + step);
}

/// The number that the bytes spell, lowest first; at most eight of them.
inline std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace frit
