#pragma once

#include <string>
#include <vector>

namespace frit::apps {

/// "0.50", whatever the locale.
std::string fixed(double value, int digits);
/// "1.2e-11"; "0" for zero.
std::string scientific(double value);
/// "42 s", "3 min 05 s", "2 h 10 min".
std::string duration_text(double seconds);
/// "12,345".
std::string grouped(long long count);

/// The words between separators, without empty ones.
std::vector<std::string> split(const std::string& text, char separator);

}  // namespace frit::apps
