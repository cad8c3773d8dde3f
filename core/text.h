#pragma once

#include <span>
#include <string>
#include <string_view>

namespace frit {

/// "; did you mean \"...\"?" for the nearest of `known` by edit distance, or nothing when none is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

/// Whether the whole name is what the pattern says: * stands for any characters, ? for any one, and all else, brackets too, for itself.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Text from a file made fit to print: control characters, quotes and bytes that are not UTF-8 escaped, cut to 200 bytes.
std::string printable(std::string_view text);

/// "1.5 MiB", "64 B".
std::string bytes_text(std::size_t bytes);

}  // namespace frit
