#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace frit {

/// How deep JSON from a file or the command line may be nested. What copies, prints and destroys it calls itself as often.
inline constexpr int json_depth_limit = 8;

/// JSON that is not of frit's own making is read here, or where it is a header of many megabytes by its events, by the same rules. Throws
/// ErrorKind::format, beginning with `what`, for text that is no JSON, nested too deeply, or has a key twice in one object.
nlohmann::json read_json(std::string_view text, std::string_view what);

/// What the parser has against a text, fit to print and without what it quotes of it.
std::string json_fault(const nlohmann::json::exception& error);

/// A value for a message: fit to print, and short.
std::string json_excerpt(const nlohmann::json& value);

}  // namespace frit
