#include "frit/core/cuda/pinned.h"

#include <cstring>

#include "frit/core/cuda/runtime.h"
#include "frit/core/memory/caching_allocator.h"

namespace frit::cuda {
namespace {

class PinnedMemory final : public MemorySource {
 public:
  std::string_view name() const override { return "page-locked host memory"; }
  std::size_t alignment() const override { return 64; }
  std::size_t page() const override { return 4096; }

  void* acquire(std::size_t bytes) noexcept override {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return nullptr;
  }
  void release(void* memory, std::size_t) noexcept override { (void)cudaFreeHost(memory); }
  void fill(void* memory, unsigned char byte, std::size_t bytes, StreamId) override { std::memset(memory, byte, bytes); }
  void read(void* host, const void* memory, std::size_t bytes, StreamId) override { std::memcpy(host, memory, bytes); }
};

}  // namespace

Tensor pinned_tensor(const Shape& shape, DType dtype) {
  // Never destroyed, as static objects may hold tensors.
  static Allocator& allocator = *new CachingAllocator(std::make_unique<PinnedMemory>(), guarded_by_environment());
  return Tensor::empty_in(allocator, shape, dtype, Device::cpu());
}

void copy_async(const Tensor& destination, const Tensor& source, cudaStream_t stream) {
  FRIT_CHECK(destination.is_contiguous() && source.is_contiguous() && destination.dtype() == source.dtype() &&
             destination.shape() == source.shape());
  if (source.elements() == 0) return;
  FRIT_CUDA_CALL(cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<std::size_t>(source.bytes()), cudaMemcpyDefault, stream));
}

}  // namespace frit::cuda
