#include "apps/common/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace frit::apps {
namespace {

template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  std::array<char, 400> buffer;  // enough for the largest double without exponent
  std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return buffer.data();
}

}  // namespace

std::string fixed(double value, int digits) { return print("%.*f", digits, value); }

std::string scientific(double value) { return value == 0 ? "0" : print("%.1e", value); }

std::string duration_text(double seconds) {
  const long whole = std::lround(std::clamp(seconds, 0.0, 1e9));
  if (whole < 60) return print("%ld s", whole);
  if (whole < 3600) return print("%ld min %02ld s", whole / 60, whole % 60);
  return print("%ld h %02ld min", whole / 3600, whole % 3600 / 60);
}

std::string grouped(long long count) {
  std::string digits = std::to_string(count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (std::ptrdiff_t i = std::ssize(digits) - 3; i > first; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace frit::apps
