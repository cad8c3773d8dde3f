#pragma once

// Fuzz targets: each reads bytes that anybody may have written. Built with libFuzzer every target is a program of its own
// (fuzz_driver.cpp); in the suite all of them read the files of corpus/ (corpus_test.cpp).

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "frit/core/error.h"
#include "fuzz/mutators.h"

namespace frit::fuzzing {

struct Target {
  const char* name;
  void (*read)(const std::string& bytes);  ///< throws Error for what it refuses
  Mutator mutate = nullptr;                ///< missing: libFuzzer's own
};

/// Of this program.
std::vector<Target>& targets();

/// Once, before anything is read: one thread, no memory beyond `most_memory`, and what is read or written beyond a tensor's end is found.
void prepare();
inline constexpr std::size_t most_memory = std::size_t{512} << 20;

/// Reads the bytes or refuses them. Throws what is a fault: an error that is a bug's or for want of memory, and all that is no Error.
void read(const Target& target, const std::string& bytes);

/// A file in memory that holds the bytes, for readers that take a path; until the next call.
std::string path_of(std::string_view bytes);

inline bool registered(const Target& target) {
  targets().push_back(target);
  return true;
}

/// FRIT_FUZZ_TARGET(npy) { read_npy(...); }, with `bytes`. A mutator may follow the name.
#define FRIT_FUZZ_TARGET(name, ...)                                                                     \
  static void fuzz_##name(const std::string& bytes);                                                    \
  static const bool name##_registered = ::frit::fuzzing::registered({#name, fuzz_##name, __VA_ARGS__}); \
  static void fuzz_##name([[maybe_unused]] const std::string& bytes)

}  // namespace frit::fuzzing
