#include "frit/core/plan_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "frit/core/io/file.h"
#include "frit/core/io/json.h"
#include "frit/core/text.h"
#include "frit/core/warning.h"

namespace frit {
namespace {

using Json = nlohmann::json;

constexpr const char* format_name = "frit plan cache";
constexpr int format_version = 1;
constexpr std::uint64_t most_bytes = std::uint64_t{64} << 20;

bool is_record(const Json& value) {
  return value.is_object() && std::all_of(value.begin(), value.end(), [](const Json& field) { return field.is_primitive(); });
}

/// Throws ErrorKind::format for anything but a plan cache of this version, or an empty file, in which nothing can be lost.
std::map<std::string, std::string> read_entries(const std::string& path) {
  const std::string text = read_text(path, most_bytes);
  if (text.empty()) return {};
  const Json file = read_json(text, printable(path));
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) fail(ErrorKind::format, printable(path), ": ", what);
  };
  expect(file.is_object() && file.contains("format") && file["format"] == format_name, "not a plan cache");
  expect(file.contains("version") && file["version"] == format_version, "of another version");
  expect(file.contains("entries") && file["entries"].is_object(), "no object \"entries\"");
  std::map<std::string, std::string> entries;
  for (const auto& [key, record] : file["entries"].items()) {
    expect(is_record(record), "an entry is not an object of plain values");
    entries[key] = record.dump();
  }
  return entries;
}

std::string to_text(const std::map<std::string, std::string>& entries) {
  nlohmann::ordered_json file = {{"format", format_name}, {"version", format_version}, {"entries", nlohmann::ordered_json::object()}};
  for (const auto& [key, record] : entries) file["entries"][key] = nlohmann::ordered_json::parse(record);
  return file.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string default_path() {
  if (std::getenv("FRIT_PLAN_CACHE") != nullptr) return variable("FRIT_PLAN_CACHE");
  std::filesystem::path folder = variable("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {  // as its specification says
    folder = variable("HOME");
    if (!folder.is_absolute()) return {};
    folder /= ".cache";
  }
  return (folder / "frit" / "plans.json").string();
}

}  // namespace

void PlanCache::use_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  path_ = path == "off" ? "" : path;
  read_ = false;
  writable_ = true;
}

std::string PlanCache::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

std::size_t PlanCache::size() {
  const std::lock_guard lock(mutex_);
  if (!read_) merge_file();
  return entries_.size();
}

std::optional<std::string> PlanCache::find_json(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!read_) merge_file();
  const auto place = entries_.find(key);
  return place == entries_.end() ? std::nullopt : std::optional(place->second);
}

void PlanCache::insert_json(const std::string& key, const std::string& json) {
  const std::lock_guard lock(mutex_);
  entries_[key] = json;
  if (!path_.empty() && writable_) write_file();
}

/// What is known already wins: it was found later.
void PlanCache::merge_file() {
  read_ = true;
  std::error_code error;
  if (path_.empty() || !std::filesystem::exists(path_, error)) return;
  try {
    entries_.merge(read_entries(path_));
  } catch (const Error& failure) {
    warn(concat("the plan cache is left alone, it cannot be used: ", failure.what()));
    writable_ = false;
  }
}

void PlanCache::write_file() {
  merge_file();
  if (!writable_) return;
  try {
    std::error_code error;  // told by the write
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
    remove_stale_temporaries(path_);
    write_text(path_, to_text(entries_));
  } catch (const Error& failure) {
    warn(concat("plans are not kept for other processes: ", failure.what()));
    writable_ = false;
  }
}

PlanCache& plan_cache() {
  static auto& cache = *new PlanCache(default_path());
  return cache;
}

}  // namespace frit
