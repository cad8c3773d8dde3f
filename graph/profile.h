#pragma once

#include <map>
#include <memory>

#include "frit/graph/executable.h"

namespace frit::graph {

/// What a step reads and writes: "f32 8x8, f32 8 -> f32 8x8"; a tensor that is not contiguous says "channels-last". Calls that are computed
/// together, which differ in their shapes: "3 together: f32 -> f16".
std::string types_text(const Step& step);

/// One step of an executable, and how long it takes by itself.
struct StepProfile {
  std::string op;              ///< the operator's name
  std::string types;           ///< see types_text
  std::string schedule;        ///< the way in which its kernel computes it, where there are several
  std::int64_t bytes;          ///< that must move: each tensor read once and each written once; what is updated in place counts twice
  double microseconds;         ///< the median
  double multiplications = 0;  ///< see ops::Operator
};

/// Runs all steps of an executable's run, or of its preparation, in order `repeats` times and times each by itself (see Timer). It must
/// have run, on the inputs that are used here again; variables are updated as in any run. Throws ErrorKind::argument for fewer than one
/// repeat.
std::vector<StepProfile> profile(const std::vector<Step>& steps, Device device, int repeats);
/// Of its run, without the preparation.
inline std::vector<StepProfile> profile(const Executable& executable, int repeats) {
  return profile(executable.steps(), executable.device(), repeats);
}

/// Microseconds of the gradient, in each of `repeats` runs after `warmup` others: of the steps that result `of`, the loss, does not need,
/// less those that change a variable. They are launched as one, after those that it needs. The executable must have run, on the inputs that
/// are used here again. Throws ErrorKind::argument if there is no such result.
std::vector<double> time_gradient(const Executable& executable, std::string_view of, int warmup, int repeats);

/// A step of a run that was traced.
struct TracedStep {
  std::string op, types, schedule;  ///< as in StepProfile
  std::int64_t bytes;               ///< likewise
  std::int64_t alive;               ///< bytes of the arena that are needed while it runs
};

/// A run, step by step.
struct TracedRun {
  std::shared_ptr<const std::vector<TracedStep>> steps;
  std::vector<double> marks;  ///< when the run began and when each step had ended: microseconds, as Tracing::now says them
};

/// While one lives, executables that its thread runs are timed step by step, and on a GPU not launched as one. What they compute is the
/// same.
class Tracing {
 public:
  Tracing();
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  /// That of this thread, or null.
  static Tracing* current();
  void run(const Executable& executable);

  const std::vector<TracedRun>& runs() const { return runs_; }
  /// Microseconds since the first time that this was asked.
  static double now();

 private:
  std::shared_ptr<const std::vector<TracedStep>> describe(const Executable& executable);

  std::map<const Executable*, std::shared_ptr<const std::vector<TracedStep>>> described_;
  std::vector<TracedRun> runs_;
};

}  // namespace frit::graph
