#pragma once

#include <algorithm>
#include <chrono>

namespace frit {

/// How long something has been waited for, which whoever waits looks at once a second or more often. Of longer times
/// between looks at most 2 seconds count: the process was stopped then (Ctrl-Z), and those it waits for with it.
class Waiting {
 public:
  double seconds() {
    const Clock::time_point now = Clock::now();
    waited_ += std::min(now - last_, Clock::duration(std::chrono::seconds(2)));
    last_ = now;
    return std::chrono::duration<double>(waited_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  Clock::duration waited_{0};
};

}  // namespace frit
