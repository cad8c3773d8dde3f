#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frit/core/error.h"
#include "sanitized.h"

namespace frit {

/// Processor time of this process in seconds: the same on a machine that is busy with other things.
inline double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// The most bytes of memory that `action` takes besides what was there before.
template <class Action>
std::size_t peak_memory(const Action& action) {
  const auto most_resident = [] {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      std::size_t kilobytes = 0;
      if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
    }
    ADD_FAILURE() << "the system does not say how much memory was taken";
    return std::size_t{0};
  };
  std::ofstream("/proc/self/clear_refs") << 5;  // from now on
  const std::size_t before = most_resident();
  action();
  return most_resident() - before;
}

/// A folder of its own for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "frit_test_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot make " << pattern;
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + '/' + name; }
  /// The names of everything in it.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::string path_;
};

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Runs `action`, which must throw an Error of that kind with `fragment` in its message.
template <class Action>
void expect_error(ErrorKind kind, const std::string& fragment, const Action& action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected: " << fragment;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << "message:  " << error.what() << "\nexpected: " << fragment;
  }
}

}  // namespace frit
