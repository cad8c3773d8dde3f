#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "frit/core/cuda/stream.h"
#include "frit/core/tensor.h"

namespace frit::cuda {

/// Times pieces of work on a device's compute stream by events. Nothing waits between the pieces, so that the host stays ahead.
class EventTimer {
 public:
  explicit EventTimer(int index);

  /// Fills the L2 cache with other data, then calls `work`, which starts what is timed.
  void time(const std::function<void()>& work);
  /// Waits. Microseconds of each piece since the last call, in order.
  std::vector<double> take();

 private:
  Event record() const;

  int index_ = 0;
  Tensor other_data_;
  std::vector<std::pair<Event, Event>> pieces_;
};

/// Moments of a device's compute stream.
class EventMarks {
 public:
  explicit EventMarks(int index);

  /// When the work that the stream was given before is done.
  void mark();
  /// Waits. Microseconds from the first mark to each, in order; the next start over.
  std::vector<double> take();

 private:
  [[maybe_unused]] int index_ = 0;  // nothing uses it without CUDA
  std::vector<Event> events_;
};

}  // namespace frit::cuda
