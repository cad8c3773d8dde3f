#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "frit/core/dtype.h"

/// What the reader and the writer of safetensors files share: eight bytes with the header's length, the header as JSON, the data.
namespace frit::safetensors_format {

inline constexpr std::uint64_t length_bytes = 8;
inline constexpr std::uint64_t header_limit = 100'000'000;
inline constexpr std::size_t metadata_limit = 65'536;
inline constexpr std::string_view metadata_key = "__metadata__";

/// "F32": the dtype's name in capitals.
inline std::string dtype_text(DType dtype) {
  std::string text(name_of(dtype));
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace frit::safetensors_format
