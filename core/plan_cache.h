#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "frit/core/error.h"
#include "frit/core/fields.h"

namespace frit {

/// What was found by trying, by keys that name all it depends on: in memory, and in a file of JSON that outlives the process. The file is
/// read when it is first needed. Every new entry is written at once: the file is read again, what other processes have added stays, and the
/// whole takes its place in one step; of two processes that write at the same moment one may lose an entry, which it will find again. What
/// is no plan cache of this version causes a warning and is left alone. Thread-safe.
class PlanCache {
 public:
  /// See use_file.
  explicit PlanCache(const std::string& path = {}) { use_file(path); }

  /// From now on the file is this one; empty or "off": none. What is known stays known.
  void use_file(const std::string& path);
  /// Empty where there is none.
  std::string path() const;
  std::size_t size();

  /// A struct that lists its fields (see FieldVisitor); nothing for an unknown key, or an entry that has other fields.
  template <class Record>
  std::optional<Record> find(const std::string& key) {
    const std::optional<std::string> json = find_json(key);
    if (!json) return std::nullopt;
    try {
      return fields_from_json(*json, Record{}, key);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  template <class Record>
  void insert(const std::string& key, const Record& record) {
    insert_json(key, fields_to_json(record));
  }

 private:
  using Entries = std::map<std::string, std::string>;  ///< JSON objects

  std::optional<std::string> find_json(const std::string& key);
  void insert_json(const std::string& key, const std::string& json);
  void merge_file();
  void write_file();

  mutable std::mutex mutex_;
  std::string path_;
  bool read_ = false, writable_ = true;  ///< of the file
  Entries entries_;
};

/// "frit 0.1.0 1a2b3c4d", the version and a checksum of frit's sources: part of a key whose record depends on frit's own kernels.
std::string build_name();

/// The process's. Its file is $FRIT_PLAN_CACHE, by default frit/plans.json in the user's cache directory.
PlanCache& plan_cache();

}  // namespace frit
