#include "frit/core/cuda/runtime.h"

#include <deque>
#include <mutex>

#include "frit/core/cuda/device.h"
#include "frit/core/memory/caching_allocator.h"
#include "frit/core/text.h"

namespace frit::cuda {
namespace {

class CudaMemory final : public MemorySource {
 public:
  explicit CudaMemory(int index) : index_(index), name_(concat(Device{DeviceKind::cuda, index})) {}

  std::string_view name() const override { return name_; }
  std::size_t alignment() const override { return 256; }
  std::size_t page() const override { return std::size_t{128} << 10; }

  void* acquire(std::size_t bytes) noexcept override {
    void* memory = nullptr;
    if (cudaSetDevice(index_) == cudaSuccess && cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return nullptr;
  }
  void release(void* memory, std::size_t) noexcept override { (void)cudaFree(memory); }  // waits for the work on the device
  void fill(void* memory, unsigned char byte, std::size_t bytes, StreamId) override {
    FRIT_CUDA_CALL(cudaMemsetAsync(memory, byte, bytes, compute_stream(index_)));
  }
  void read(void* host, const void* memory, std::size_t bytes, StreamId) override {
    synchronize(index_);  // by its rules; the copy to pageable memory would wait without a limit
    FRIT_CUDA_CALL(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDefault, compute_stream(index_)));
  }
  std::optional<std::size_t> free_bytes() const override { return free_memory(index_); }

 private:
  int index_;
  std::string name_;
};

/// What is kept of one device for the process's life. Streams and allocators are never destroyed, as static objects may hold tensors.
struct DeviceState {
  std::once_flag once;
  cudaStream_t stream = nullptr;
  DeviceProperties properties = {};
  CachingAllocator* allocator = nullptr;
};

/// What a StreamScope has set for this thread: a device, -1 for none, and its stream.
thread_local std::pair<int, cudaStream_t> scoped_stream = {-1, nullptr};

DeviceState& state_of(int index) {
  static auto& states = *new std::deque<DeviceState>(static_cast<std::size_t>(device_count()));
  if (index < 0 || static_cast<std::size_t>(index) >= states.size()) {
    fail(ErrorKind::device, Device{DeviceKind::cuda, index}, " is not there: the machine has ", states.size(), " CUDA devices");
  }
  DeviceState& state = states[static_cast<std::size_t>(index)];
  std::call_once(state.once, [&] {
    FRIT_CUDA_CALL(cudaSetDevice(index));
    FRIT_CUDA_CALL(cudaStreamCreateWithFlags(&state.stream, cudaStreamNonBlocking));
    cudaDeviceProp p;
    FRIT_CUDA_CALL(cudaGetDeviceProperties(&p, index));
    state.properties = {p.multiProcessorCount, 10 * p.major + p.minor, p.sharedMemPerBlockOptin, static_cast<std::size_t>(p.l2CacheSize)};
    state.allocator = new CachingAllocator(std::make_unique<CudaMemory>(index), guarded_by_environment());
  });
  return state;
}

std::string model_of(const cudaDeviceProp& p) { return concat(p.name, ", compute capability ", p.major, '.', p.minor); }

}  // namespace

int device_count() {
  static const int count = [] {
    int found = 0;
    if (cudaGetDeviceCount(&found) == cudaSuccess) return found;
    (void)cudaGetLastError();
    return 0;
  }();
  return count;
}

std::string description(int index) {
  cudaDeviceProp p;
  FRIT_CUDA_CALL(cudaGetDeviceProperties(&p, index));
  return concat(model_of(p), ", ", bytes_text(p.totalGlobalMem));
}

std::string model(int index) {
  cudaDeviceProp p;
  FRIT_CUDA_CALL(cudaGetDeviceProperties(&p, index));
  return model_of(p);
}

int capability(int index) {
  int major = 0, minor = 0;
  FRIT_CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  FRIT_CUDA_CALL(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  return 10 * major + minor;
}

std::string version() { return concat("CUDA ", CUDART_VERSION / 1000, '.', CUDART_VERSION % 1000 / 10); }

std::size_t free_memory(int index) {
  (void)compute_stream(index);  // makes the device current
  std::size_t free = 0, total = 0;
  FRIT_CUDA_CALL(cudaMemGetInfo(&free, &total));
  return free;
}

Allocator& allocator(int index) { return *state_of(index).allocator; }

const DeviceProperties& properties(int index) { return state_of(index).properties; }

CUstream_st* compute_stream(int index) {
  DeviceState& state = state_of(index);
  FRIT_CUDA_CALL(cudaSetDevice(index));
  return scoped_stream.first == index ? scoped_stream.second : state.stream;
}

StreamScope::StreamScope(int index, cudaStream_t stream) : outer_(scoped_stream) { scoped_stream = {index, stream}; }

StreamScope::~StreamScope() { scoped_stream = outer_; }

void fail_call(cudaError_t status, const char* call, const char* file, int line) {
  (void)cudaGetLastError();
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device;
  fail(kind, "CUDA: ", cudaGetErrorString(status), ": ", call, " (", file, ":", line, ")");
}

}  // namespace frit::cuda
