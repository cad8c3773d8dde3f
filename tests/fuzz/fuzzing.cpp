#include "fuzz/fuzzing.h"

#include <sys/mman.h>
#include <unistd.h>

#include "frit/core/memory/allocator.h"
#include "frit/core/thread_pool.h"

namespace frit::fuzzing {

std::vector<Target>& targets() {
  static std::vector<Target> targets;
  return targets;
}

void prepare() {
  set_thread_count(1);
  Allocator& allocator = allocator_of(Device::cpu());
  allocator.set_limit(most_memory);
  allocator.set_guarded(true);
}

void read(const Target& target, const std::string& bytes) {
  try {
    target.read(bytes);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug || error.kind() == ErrorKind::out_of_memory) throw;
  }
}

std::string path_of(std::string_view bytes) {
  static const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
  FRIT_CHECK(::ftruncate(file, 0) == 0 && ::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return concat("/proc/self/fd/", file);
}

}  // namespace frit::fuzzing
