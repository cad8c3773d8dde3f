#include "apps/report/operator_time.h"

#include <algorithm>

namespace frit::apps {

std::vector<OperatorTime> by_operator(const std::vector<graph::StepProfile>& steps) {
  std::vector<OperatorTime> times;
  for (const graph::StepProfile& step : steps) {
    const auto same = [&](const OperatorTime& time) {
      return time.op == step.op && time.types == step.types && time.schedule == step.schedule;
    };
    auto place = std::find_if(times.begin(), times.end(), same);
    if (place == times.end()) place = times.insert(times.end(), {step.op, step.types, step.schedule});
    ++place->calls;
    place->bytes += step.bytes;
    place->microseconds += step.microseconds;
    place->multiplications += step.multiplications;
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const OperatorTime& a, const OperatorTime& b) { return a.microseconds > b.microseconds; });
  return times;
}

}  // namespace frit::apps
