#pragma once

#include "frit/graph/executable.h"

namespace frit::graph {

/// One step of an executable, and how long it takes by itself.
struct StepProfile {
  std::string op;       ///< the operator's name
  std::string types;    ///< "f32 8x8, f32 8 -> f32 8x8"; a tensor that is not contiguous says "channels-last"
  std::int64_t bytes;   ///< that must move: each tensor read once and each written once; what is updated in place counts twice
  double microseconds;  ///< the median
};

/// Runs all steps in order `repeats` times and times each by itself (see Timer). The executable must have run, on the inputs that are used
/// here again; variables are updated as in any run. Throws ErrorKind::argument for fewer than one repeat.
std::vector<StepProfile> profile(const Executable& executable, int repeats);

}  // namespace frit::graph
