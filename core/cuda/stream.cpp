#include "frit/core/cuda/stream.h"

#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"

namespace frit::cuda {
namespace {

using Clock = std::chrono::steady_clock;

struct Limit {
  double seconds;
  std::function<void()> give_up;
};
std::optional<Limit>& limit_of(int index) {
  static std::array<std::optional<Limit>, 64> limits;  // more devices than a machine has
  return limits.at(static_cast<std::size_t>(index));
}

/// `query` asks whether it is done, `block` waits for it.
template <class Query, class Block>
void wait_within_limit(int index, const Query& query, const Block& block) {
  const std::optional<Limit>& limit = limit_of(index);
  if (!limit) return block();
  for (const Clock::time_point begin = Clock::now();;) {
    const cudaError_t status = query();
    if (status != cudaErrorNotReady) {
      FRIT_CUDA_CALL(status);
      return;
    }
    const std::chrono::duration<double> waited = Clock::now() - begin;
    if (waited.count() > limit->seconds) limit->give_up();
    if (waited.count() > 0.005) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

WaitLimit::WaitLimit(int index, double seconds, std::function<void()> give_up) : index_(index) {
  limit_of(index) = Limit{seconds, std::move(give_up)};
}

WaitLimit::~WaitLimit() { limit_of(index_).reset(); }

Event::Event(int index, bool timed) : index_(index) {
  (void)compute_stream(index);  // makes the device current
  cudaEvent_t event = nullptr;
  FRIT_CUDA_CALL(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  handle_.reset(event, [](cudaEvent_t handle) {
    (void)cudaEventSynchronize(handle);
    (void)cudaEventDestroy(handle);
  });
}

void Event::record(cudaStream_t stream) const { FRIT_CUDA_CALL(cudaEventRecord(get(), stream)); }

void Event::wait() const {
  wait_within_limit(
      index_, [&] { return cudaEventQuery(get()); }, [&] { FRIT_CUDA_CALL(cudaEventSynchronize(get())); });
}

void synchronize(int index) {
  const cudaStream_t stream = compute_stream(index);
  wait_within_limit(
      index, [&] { return cudaStreamQuery(stream); }, [&] { FRIT_CUDA_CALL(cudaStreamSynchronize(stream)); });
}

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
