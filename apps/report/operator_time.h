#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frit/graph/profile.h"

namespace frit::apps {

/// Steps of one operator on the same types, computed in the same way.
struct OperatorTime {
  std::string op, types, schedule;
  int calls = 0;
  std::int64_t bytes = 0;      ///< of all calls
  double microseconds = 0;     ///< of all calls
  double multiplications = 0;  ///< likewise; see ops::Operator
};

/// The steps put together by operator and types, the longest first.
std::vector<OperatorTime> by_operator(const std::vector<graph::StepProfile>& steps);

}  // namespace frit::apps
