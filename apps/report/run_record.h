#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "apps/report/event_file.h"
#include "apps/report/run_data.h"
#include "apps/report/trace.h"
#include "frit/core/io/file.h"

namespace frit::apps {

/// Watches a training: writes steps.csv, epochs.csv, an event file for TensorBoard and report.html into the run's folder as it goes, and a
/// trace of some of its first steps where that is asked for.
class RunRecord {
 public:
  /// `folder` is made if it is missing, and what processes that died left unfinished there is removed; empty: nothing is kept. `trace` is
  /// the path of the trace, empty for none. Throws ErrorKind::file_system.
  RunRecord(const std::string& folder, const std::string& trace);
  /// Writes what there is if finish() was not called, as after a failure.
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  /// What stands at the top of the report.
  void describe(std::string title, std::vector<std::pair<std::string, std::string>> facts);
  void set_memory_picture(std::string svg) { run_.memory_picture = std::move(svg); }
  /// Takes over what was written earlier of a run that goes on after so many steps, and whole epochs; what comes later is dropped. A file
  /// with lines that are no such run's is kept under another name, with a warning.
  void resume_after(std::int64_t steps, std::int64_t epochs);

  /// Around each step, on the thread that runs it.
  void step_begins();
  void step_ends();
  /// No step follows at once. Measured times have to leave out what does.
  void pause();

  /// What a step gave, which may be told after later ones have begun. `seconds` and the rate are filled in here.
  void add(StepMetrics step, std::int64_t examples);
  /// `confusion`: of its validation, which classes.csv and confusion.csv then hold too.
  void add(EpochMetrics epoch, const std::optional<ConfusionMatrix>& confusion = {});
  void finish();

 private:
  void open_files();
  void close_trace();
  void write_report() const;
  double seconds() const;

  std::string folder_, trace_path_;
  RunData run_;
  int steps_file_ = -1, epochs_file_ = -1;
  std::optional<EventFile> events_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::int64_t steps_before_ = 0;    ///< of the run before this process
  double before_ = 0;                ///< seconds of the run before this process
  std::optional<double> last_step_;  ///< seconds when the last step was told of; none after a pause
  std::int64_t begun_ = 0;           ///< steps of this process
  std::int64_t traced_ = 0;          ///< of them
  std::optional<graph::Tracing> tracing_;
  std::vector<std::pair<double, double>> waits_;  ///< for data, while tracing: when each began and ended
  std::optional<double> waiting_since_;
  std::optional<double> reported_;  ///< seconds when the report was written last
  bool finished_ = false;
};

}  // namespace frit::apps
