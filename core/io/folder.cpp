#include "frit/core/io/folder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

/// Calls visit(name) for what is wanted until it returns false. An iterator that is advanced by ++ throws errors of its own.
template <class Visit>
std::error_code visit_names(const std::string& folder, const WantedPath& wanted, const Visit& visit) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && wanted(entry->path().string()) && !visit(std::move(name))) break;
  }
  return error;
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::vector<std::string> names_in(const std::string& folder, const WantedPath& wanted) {
  std::vector<std::string> names;
  const std::error_code error = visit_names(folder, wanted, [&](std::string name) {
    names.push_back(std::move(name));
    return true;
  });
  if (error) fail(ErrorKind::file_system, printable(folder), ": ", reason(error.value()));
  std::sort(names.begin(), names.end());
  return names;
}

bool has_any(const std::string& folder, const WantedPath& wanted) {
  bool found = false;
  (void)visit_names(folder, wanted, [&](const std::string&) {
    found = true;
    return false;
  });
  return found;
}

}  // namespace frit
