#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "frit/core/cuda/timer.h"

namespace frit {

/// Times pieces of work on a device: on a GPU by events on its compute stream, with other data in the L2 cache before each piece; on the
/// CPU by the clock, with the caches as they are.
class Timer {
 public:
  explicit Timer(Device device);

  /// Calls `work`, which starts what is timed.
  void time(const std::function<void()>& work);
  /// Waits for the device. Microseconds of each piece since the last call, in order.
  std::vector<double> take();

 private:
  std::optional<cuda::EventTimer> events_;  // on a GPU
  std::vector<double> times_;               // on the CPU
};

/// Moments of a device's work: on a GPU when what its compute stream was given before is done, on the CPU by the clock.
class Marks {
 public:
  explicit Marks(Device device);

  void mark();
  /// Waits for the device. Microseconds from the first mark to each, in order; the next start over.
  std::vector<double> take();

 private:
  std::optional<cuda::EventMarks> events_;                    // on a GPU
  std::vector<std::chrono::steady_clock::time_point> times_;  // on the CPU
};

/// The value below which that fraction of the values lies, between two of them by linear interpolation. Throws ErrorKind::argument for no
/// values or a fraction outside [0, 1].
double quantile(std::vector<double> values, double fraction);

}  // namespace frit
