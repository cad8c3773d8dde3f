#include <cstdlib>
#include <cstring>

#include "frit/core/cuda/device.h"
#include "frit/core/memory/caching_allocator.h"

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
  void read(void* host, const void* memory, std::size_t bytes, StreamId) override { std::memcpy(host, memory, bytes); }
};

}  // namespace

Allocator& allocator_of(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda::allocator(device.index);
  // Never destroyed, as static objects may hold tensors.
  static Allocator& allocator = *new CachingAllocator(std::make_unique<CpuMemory>(), guarded_by_environment());
  return allocator;
}

}  // namespace frit
