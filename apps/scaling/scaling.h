#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "apps/benchmark/benchmark.h"
#include "apps/common/json.h"
#include "apps/scaling/step_model.h"

namespace frit::apps {

/// What a training step is to be predicted for.
struct ScalingOptions {
  std::vector<int> processes = {};  ///< empty: nothing is predicted
  std::optional<int> per_machine;
  std::optional<double> link_latency, link_bandwidth;        ///< microseconds, GB/s; without them as it is measured
  std::optional<double> network_latency, network_bandwidth;  ///< microseconds, Gbit/s

  void add_to(CLI::App& command);
  bool asked() const { return !processes.empty(); }
  /// Throws ErrorKind::argument for options that do not go with each other.
  void check(const Communicator* communicator) const;
  /// What is not given is what a mean over `measured` processes on `machines` cost, or else a network of today's.
  Cluster cluster(const std::optional<CallCost>& all_reduce, int measured, int machines) const;
};

/// A step measured by itself, and what follows for many processes.
struct ScalingReport {
  StepModel step;
  Cluster cluster;
  std::optional<CallCost> measured_mean;  ///< of `measured_by` processes
  int measured_by = 1;
  double measured = 0;                     ///< microseconds of a step of these
  std::optional<Prediction> started = {};  ///< what was to be expected of it
  std::vector<Prediction> predictions;
};

/// Times the subject's training step as of a process that has no others, and how these are connected. `together` is the time of a step with
/// all processes that were started.
ScalingReport measure_scaling(const ScalingOptions& options, const Subject& subject, const Benchmark& bench, double together);

void print_table(std::ostream& out, const ScalingReport& report);
Json json_of(const ScalingReport& report);

}  // namespace frit::apps
