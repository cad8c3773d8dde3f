#include "frit/core/timer.h"

#include <algorithm>

namespace frit {

Timer::Timer(Device device) {
  if (device.kind == DeviceKind::cuda) events_.emplace(device.index);
}

void Timer::time(const std::function<void()>& work) {
  if (events_) return events_->time(work);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  work();
  times_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
}

std::vector<double> Timer::take() { return events_ ? events_->take() : std::exchange(times_, {}); }

Marks::Marks(Device device) {
  if (device.kind == DeviceKind::cuda) events_.emplace(device.index);
}

void Marks::mark() {
  if (events_) return events_->mark();
  times_.push_back(std::chrono::steady_clock::now());
}

std::vector<double> Marks::take() {
  if (events_) return events_->take();
  std::vector<double> microseconds;
  for (const auto& time : times_) microseconds.push_back(std::chrono::duration<double, std::micro>(time - times_.front()).count());
  times_.clear();
  return microseconds;
}

double quantile(std::vector<double> values, double fraction) {
  require(!values.empty(), "quantile: there are no values");
  require(fraction >= 0 && fraction <= 1, "quantile: expected a fraction from 0 to 1, got ", fraction);
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace frit
