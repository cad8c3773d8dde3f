#pragma once

#include <vector>

#include "apps/scaling/links.h"
#include "frit/graph/executable.h"

namespace frit::apps {

/// A piece of a training step: work of one process, or the mean of some gradients over all.
struct Part {
  double microseconds = 0;               ///< of a process that has no others
  std::vector<TensorType> reduced = {};  ///< of a mean
  std::vector<int> after = {};           ///< earlier parts that it waits for

  bool reduces() const { return !reduced.empty(); }
  double reduced_bytes() const;
};

struct Span {
  double begin, end;
};

/// When each part runs, in microseconds. Parts that overlap do so in two lanes, one for work and one for means: in either runs what can
/// begin first, of several the earlier part. Else there is one lane, in the order of the parts.
std::vector<Span> timeline(const std::vector<Part>& parts, const CallCost& mean, bool overlap);
double end_of(const std::vector<Span>& spans);

/// A training step as one process measures it.
struct StepModel {
  std::vector<Part> parts;
  double microseconds = 0;  ///< the median
  double deviation = 0;     ///< its standard deviation, in microseconds
  double examples = 0;
  bool overlap = false;

  /// Of what the executable runs: each step timed by itself, in proportion to what all take together.
  static StepModel of(const graph::Executable& executable, double microseconds, double deviation, double examples, int repeats);

  double work() const;  ///< microseconds of a step whose means take no time
  double reduced_bytes() const;
};

/// What becomes of a step on several processes.
struct Prediction {
  enum class Limit { work, machine, network, latency, stragglers };

  int processes = 1, machines = 1;
  double microseconds = 0;              ///< of a step
  double communication = 0;             ///< of all means, each by itself
  double by_latency = 0, by_bytes = 0;  ///< of that what no work hides
  double stragglers = 0;                ///< what all wait for the slowest
  Limit limit = Limit::work;            ///< on what most of the time goes that is lost, if that is worth naming

  double efficiency(const StepModel& step) const { return step.microseconds / microseconds; }
  double examples_per_second(const StepModel& step) const { return 1e6 * step.examples * processes / microseconds; }
};

Prediction predict(const StepModel& step, const Cluster& cluster, int processes);

/// How many standard deviations the largest of so many values of a normal distribution lies above their mean, on average (G. Blom,
/// Statistical Estimates and Transformed Beta-Variables, 1958).
double expected_maximum(int count);

}  // namespace frit::apps
