#include "frit/core/text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <locale>
#include <numeric>
#include <sstream>
#include <vector>

#include "frit/core/error.h"

namespace frit {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// Bytes of the UTF-8 sequence at the start of `text`; 0 if it is not a printable one.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80 ? 1 : byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0x20 || byte(0) == 0x7F || (byte(0) >= 0x80 && byte(0) < 0xC2) || byte(0) > 0xF4 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (byte(0) == 0xC2 && byte(1) < 0xA0) return 0;  // C1 control characters
  return length;
}

}  // namespace

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  std::size_t best = std::max<std::size_t>(name.size() / 3, 2) + 1;
  const std::string* nearest = nullptr;
  for (const std::string& candidate : known) {
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    if (longer - shorter >= best) continue;  // so many letters at least are to be added
    const std::size_t distance = edit_distance(name.substr(0, 100), candidate);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? std::string() : "; did you mean \"" + *nearest + "\"?";
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, after_star = 0;  // where the last * stands, and what it has taken of the name
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string printable(std::string_view text) {
  constexpr std::size_t limit = 200;
  std::string result;
  while (!text.empty()) {
    if (result.size() >= limit) return result + "...";
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(text[0]));
      result += escape;
      text.remove_prefix(1);
      continue;
    }
    if (text[0] == '"' || text[0] == '\\') result += '\\';
    result += text.substr(0, length);
    text.remove_prefix(length);
  }
  return result;
}

std::string bytes_text(std::size_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char buffer[32];
  const auto [end, error] = std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::fixed, unit == 0 ? 0 : 1);
  return std::string(buffer, end) + ' ' + units[unit];
}

}  // namespace frit

// What error.h declares: text too, and the one file that prints numbers for it.
namespace frit::detail {

template <class T>
void print_number(std::ostream& out, const void* value) {
  out << *static_cast<const T*>(value);
}

template void print_number<bool>(std::ostream&, const void*);
template void print_number<char>(std::ostream&, const void*);
template void print_number<signed char>(std::ostream&, const void*);
template void print_number<unsigned char>(std::ostream&, const void*);
template void print_number<short>(std::ostream&, const void*);
template void print_number<unsigned short>(std::ostream&, const void*);
template void print_number<int>(std::ostream&, const void*);
template void print_number<unsigned>(std::ostream&, const void*);
template void print_number<long>(std::ostream&, const void*);
template void print_number<unsigned long>(std::ostream&, const void*);
template void print_number<long long>(std::ostream&, const void*);
template void print_number<unsigned long long>(std::ostream&, const void*);
template void print_number<float>(std::ostream&, const void*);
template void print_number<double>(std::ostream&, const void*);
template void print_number<long double>(std::ostream&, const void*);

std::string joined(std::initializer_list<MessagePart> parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  for (const MessagePart& part : parts) {
    if (part.print == nullptr) {
      stream << part.text;
    } else {
      part.print(stream, part.value);
    }
  }
  return stream.str();
}

}  // namespace frit::detail
