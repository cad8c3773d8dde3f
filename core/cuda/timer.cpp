#include "frit/core/cuda/timer.h"

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"

namespace frit::cuda {

EventTimer::EventTimer(int index)
    : index_(index),
      other_data_(Tensor::empty({static_cast<std::int64_t>(2 * properties(index).l2_bytes)}, DType::u8, {DeviceKind::cuda, index})) {}

Event EventTimer::record() const {
  Event event(index_, /*timed=*/true);
  event.record(compute_stream(index_));
  return event;
}

void EventTimer::time(const std::function<void()>& work) {
  FRIT_CUDA_CALL(cudaMemsetAsync(other_data_.raw(), 0, static_cast<std::size_t>(other_data_.bytes()), compute_stream(index_)));
  Event begin = record();
  work();
  pieces_.emplace_back(std::move(begin), record());
}

std::vector<double> EventTimer::take() {
  synchronize(index_);
  std::vector<double> microseconds;
  for (const auto& [begin, end] : pieces_) {
    float milliseconds = 0;
    FRIT_CUDA_CALL(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    microseconds.push_back(1e3 * static_cast<double>(milliseconds));
  }
  pieces_.clear();
  return microseconds;
}

EventMarks::EventMarks(int index) : index_(index) {}

void EventMarks::mark() {
  Event event(index_, /*timed=*/true);
  event.record(compute_stream(index_));
  events_.push_back(std::move(event));
}

std::vector<double> EventMarks::take() {
  synchronize(index_);
  std::vector<double> microseconds;
  for (const Event& event : events_) {
    float milliseconds = 0;
    FRIT_CUDA_CALL(cudaEventElapsedTime(&milliseconds, events_.front().get(), event.get()));
    microseconds.push_back(1e3 * static_cast<double>(milliseconds));
  }
  events_.clear();
  return microseconds;
}

}  // namespace frit::cuda
