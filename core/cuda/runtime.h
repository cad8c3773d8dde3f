#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "frit/core/device.h"
#include "frit/core/error.h"

/// Throws ErrorKind::device, or ErrorKind::out_of_memory, with the expression, file and line unless a CUDA runtime call succeeds.
#define FRIT_CUDA_CALL(call)                                                  \
  do {                                                                        \
    if (const cudaError_t frit_status = (call); frit_status != cudaSuccess) { \
      ::frit::cuda::fail_call(frit_status, #call, __FILE__, __LINE__);        \
    }                                                                         \
  } while (false)

namespace frit::cuda {

[[noreturn]] void fail_call(cudaError_t status, const char* call, const char* file, int line);

/// While it lives, the device's compute stream is another one for the calling thread.
class StreamScope {
 public:
  StreamScope(int index, cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  std::pair<int, cudaStream_t> outer_;
};

/// The calling thread's.
inline Device current_device() {
  Device device{DeviceKind::cuda};
  FRIT_CUDA_CALL(cudaGetDevice(&device.index));
  return device;
}

/// What launches need to know of the current device, read once.
struct DeviceProperties {
  int multiprocessors;
  int capability;                ///< 90 for compute capability 9.0
  std::size_t shared_per_block;  ///< the most that a block can ask for
  std::size_t l2_bytes;
};
const DeviceProperties& properties(int index);

}  // namespace frit::cuda
