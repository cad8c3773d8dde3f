#include "frit/core/cuda/stream.h"

#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include "frit/core/communication/waiting.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"

namespace frit::cuda {
namespace {

std::optional<WaitRules>& rules_of(int index) {
  static std::array<std::optional<WaitRules>, 64> rules;  // more devices than a machine has
  return rules.at(static_cast<std::size_t>(index));
}

/// `query` asks whether it is done, `block` waits for it.
template <class Query, class Block>
void wait_within_limit(int index, const Query& query, const Block& block) {
  const std::optional<WaitRules>& rules = rules_of(index);
  if (!rules) return block();
  wait_by(*rules, [&] {
    const cudaError_t status = query();
    if (status != cudaErrorNotReady) FRIT_CUDA_CALL(status);
    return status != cudaErrorNotReady;
  });
}

}  // namespace

void wait_by(const WaitRules& rules, const std::function<bool()>& done) {
  double next = 0.05;
  for (Waiting waiting; !done();) {
    const double waited = waiting.seconds();
    if (waited > 0.005) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (waited < next) continue;
    next = waited + 0.05;
    rules.meanwhile();
    if (waited > rules.seconds) return rules.give_up(done);
  }
}

WaitLimit::WaitLimit(int index, WaitRules rules) : index_(index) { rules_of(index) = std::move(rules); }

WaitLimit::~WaitLimit() { rules_of(index_).reset(); }

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
