#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "frit/core/cuda/device.h"
#include "frit/core/memory/caching_allocator.h"

// AddressSanitizer's own; there in a program that it watches.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* memory, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* memory, std::size_t bytes);
}

namespace frit {
namespace {

class CpuMemory final : public MemorySource {
 public:
  std::string_view name() const override { return "cpu"; }
  std::size_t alignment() const override { return 64; }
  std::size_t page() const override { return 1024; }

  void* acquire(std::size_t bytes) noexcept override {
    constexpr std::size_t address_space = std::size_t{1} << 47;
    return bytes < address_space ? std::aligned_alloc(alignment(), bytes) : nullptr;
  }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  void fill(void* memory, unsigned char byte, std::size_t bytes, StreamId) override { std::memset(memory, byte, bytes); }
  void set_forbidden(void* memory, std::size_t bytes, bool forbidden) override {
    const auto tell = forbidden ? __asan_poison_memory_region : __asan_unpoison_memory_region;
    if (tell != nullptr) tell(memory, bytes);
  }
  void read(void* host, const void* memory, std::size_t bytes, StreamId) override { std::memcpy(host, memory, bytes); }
};

/// What the allocator holds that nobody uses.
std::size_t cached(const Allocator& allocator) {
  const AllocatorStatistics statistics = allocator.statistics();
  return statistics.reserved - statistics.in_use;
}

}  // namespace

std::size_t available_memory(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda::free_memory(device.index) + cached(cuda::allocator(device.index));
  std::size_t available = std::numeric_limits<std::size_t>::max();
  std::ifstream system("/proc/meminfo");
  for (std::string line; std::getline(system, line);) {
    std::size_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kilobytes) == 1) available = kilobytes * 1024;
  }
  std::size_t limit = 0, used = 0;  // "max" is no number
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, limit - std::min(limit, used));
  }
  return available;
}

Allocator& allocator_of(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda::allocator(device.index);
  // Never destroyed, as static objects may hold tensors.
  static Allocator& allocator = *new CachingAllocator(std::make_unique<CpuMemory>(), guarded_by_environment());
  return allocator;
}

}  // namespace frit
