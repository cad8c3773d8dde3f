#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/common/json.h"
#include "apps/report/operator_time.h"
#include "frit/core/shape.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::apps {

/// What was measured of one way to run a model.
struct ModeTimes {
  std::string mode;                          ///< "forward", "backward", "train"
  double median = 0, p10 = 0, p90 = 0;       ///< microseconds of a whole step
  double first = 0;                          ///< seconds from the first node of its graph to the end of the first step
  std::int64_t predicted_bytes = 0;          ///< of memory, by the plan
  std::int64_t peak_bytes = 0;               ///< by the allocator, inputs left out
  std::vector<OperatorTime> operators = {};  ///< empty unless asked for
  int prepared = 0;                          ///< steps that are computed once, before the first run, and are no part of it
  double preparation = 0;                    ///< microseconds of these, each by itself; 0 unless operators are asked for
};

struct BenchReport {
  std::string model, config, device, dtype, precision, math, optimizer, search;
  Shape input;
  int threads = 1;
  bool deterministic = false;
  int repeats = 0;
  double copy_bandwidth = 0;  ///< of a large copy, bytes read and written, in GB/s
  double peak = 0;            ///< of the cores' multiplications with additions in float32, in Gflop/s; 0: not known
  std::vector<ModeTimes> modes = {};
  std::vector<ops::PlanChoice> plans = {};  ///< of cuDNN
  bool lists_plans = false;
};

void print_table(std::ostream& out, const BenchReport& report);
/// A row for each whole step, whose operator is "step", and for each operator.
void print_csv(std::ostream& out, const BenchReport& report);
Json json_of(const BenchReport& report);

}  // namespace frit::apps
