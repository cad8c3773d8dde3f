#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "frit/core/text.h"

namespace frit {

/// "LABEL: \"a\", \"b\"" of the names that are not among the others, ten at most, fit to print; empty if all are.
inline std::string names_besides(const char* label, std::span<const std::string> names, std::span<const std::string> others) {
  constexpr std::size_t most = 10;
  std::string list;
  std::size_t count = 0;
  for (const std::string& name : names) {
    if (std::find(others.begin(), others.end(), name) != others.end() || ++count > most) continue;
    list += (list.empty() ? std::string(label) + ": \"" : ", \"") + printable(name) + '"';
  }
  return count > most ? list + " and " + std::to_string(count - most) + " more" : list;
}

/// How some names differ from those that are expected: "missing: \"age\"; not expected: \"sex\", \"weight\""; empty if they do not.
inline std::string difference(std::span<const std::string> expected, std::span<const std::string> found) {
  const std::string missing = names_besides("missing", expected, found), more = names_besides("not expected", found, expected);
  return missing + (missing.empty() || more.empty() ? "" : "; ") + more;
}

}  // namespace frit
