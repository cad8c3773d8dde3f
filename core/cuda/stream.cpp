#include "frit/core/cuda/stream.h"

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"

namespace frit::cuda {

Event::Event(int index, bool timed) {
  (void)compute_stream(index);  // makes the device current
  cudaEvent_t event = nullptr;
  FRIT_CUDA_CALL(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  handle_.reset(event, [](cudaEvent_t handle) {
    (void)cudaEventSynchronize(handle);
    (void)cudaEventDestroy(handle);
  });
}

void Event::record(cudaStream_t stream) const { FRIT_CUDA_CALL(cudaEventRecord(get(), stream)); }

void Event::wait() const { FRIT_CUDA_CALL(cudaEventSynchronize(get())); }

Stream::Stream(int index) {
  (void)compute_stream(index);  // makes the device current
  cudaStream_t stream = nullptr;
  FRIT_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  handle_.reset(stream, [](cudaStream_t handle) {
    (void)cudaStreamSynchronize(handle);
    (void)cudaStreamDestroy(handle);
  });
}

void wait(cudaStream_t stream, const Event& event) { FRIT_CUDA_CALL(cudaStreamWaitEvent(stream, event.get(), 0)); }

}  // namespace frit::cuda
