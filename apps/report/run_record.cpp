#include "apps/report/run_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "frit/core/io/folder.h"
#include "frit/core/text.h"
#include "frit/core/warning.h"

namespace frit::apps {
namespace {

namespace fs = std::filesystem;

// The first steps set things up; but a trace that was asked for has to come from a short run too.
constexpr std::int64_t first_traced_for_report = 4, first_traced_for_file = 1;
constexpr std::int64_t traced_for_report = 3, traced_for_file = 10;
constexpr double report_interval = 5;  // seconds; a report has the whole run in it
constexpr std::uint64_t csv_limit = std::uint64_t{1} << 32;

int open_for_appending(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) fail(ErrorKind::file_system, printable(path), ": ", std::strerror(errno));
  return file;
}

void append(int file, std::string_view text, const char* name) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorKind::file_system, name, ": ", std::strerror(count < 0 ? errno : ENOSPC));
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// The last line of a file that a process was killed over may not be whole.
std::string whole_lines(const std::string& path) {
  std::string text = read_text(path, csv_limit);
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return text;
}

/// The good lines of a run's file, if it is there.
template <class Row>
std::vector<Row> read_rows(const std::string& path, std::vector<Row> (*parse)(const std::string&, const std::string&, std::string&)) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  std::string damage;
  std::vector<Row> rows;
  try {
    rows = parse(whole_lines(path), printable(path), damage);
  } catch (const Error& failure) {
    if (failure.kind() != ErrorKind::format) throw;
    damage = failure.what();  // too large for such a file
  }
  if (damage.empty()) return rows;
  fs::rename(path, path + ".damaged", error);
  if (error) fail(ErrorKind::file_system, printable(path), ": cannot be renamed: ", error.message());
  warn(damage + "; the file was renamed to .damaged, and the run goes on with its good lines");
  return rows;
}

std::string without_header(const std::string& csv) { return csv.substr(csv.find('\n') + 1); }

/// What one step takes, by operator, from the runs of some.
std::vector<OperatorTime> mean_times(const std::vector<graph::TracedRun>& runs, std::int64_t count) {
  std::vector<graph::StepProfile> steps;
  for (const graph::TracedRun& run : runs) {
    for (std::size_t s = 0; s < run.steps->size(); ++s) {
      const graph::TracedStep& step = (*run.steps)[s];
      steps.push_back({step.op, "", "", step.bytes, run.marks[s + 1] - run.marks[s]});
    }
  }
  std::vector<OperatorTime> times = by_operator(steps);
  for (OperatorTime& time : times) {
    time.microseconds /= static_cast<double>(count);
    time.bytes /= count;
    time.calls = std::max(1, time.calls / static_cast<int>(count));
  }
  return times;
}

}  // namespace

RunRecord::RunRecord(const std::string& folder, const std::string& trace) : folder_(folder), trace_path_(trace) {
  if (!trace.empty()) check_writable(trace);
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::file_system, printable(folder), ": ", error.message());
  check_writable(folder + "/report.html");
  remove_stale_temporaries_in(folder);
  for (const std::string& step : names_in(folder, is_folder)) remove_stale_temporaries_in(folder + '/' + step);  // that was not finite
}

RunRecord::~RunRecord() {
  try {
    const bool told = folder_.empty() || !run_.steps.empty();
    if (!finished_ && begun_ > 0 && told) finish();
  } catch (const std::exception&) {
    // What went wrong before this is what the user hears of.
  }
  for (const int file : {steps_file_, epochs_file_}) {
    if (file >= 0) ::close(file);
  }
}

void RunRecord::describe(std::string title, std::vector<std::pair<std::string, std::string>> facts) {
  run_.title = std::move(title);
  run_.facts = std::move(facts);
}

void RunRecord::resume_after(std::int64_t steps, std::int64_t epochs) {
  if (folder_.empty()) return;
  steps_before_ = steps;
  run_.steps = read_rows(folder_ + "/steps.csv", parse_steps_csv);
  run_.epochs = read_rows(folder_ + "/epochs.csv", parse_epochs_csv);
  std::erase_if(run_.steps, [&](const StepMetrics& step) { return step.step > steps; });
  // Not by its last step: after that one the run may have been killed before the epoch's own checkpoint.
  std::erase_if(run_.epochs, [&](const EpochMetrics& epoch) { return epoch.epoch > epochs; });
  before_ = run_.steps.empty() ? 0 : run_.steps.back().seconds;
}

double RunRecord::seconds() const { return before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

/// At the first thing that is told, so that a run that fails before it leaves what was there.
void RunRecord::open_files() {
  if (events_) return;
  write_text(folder_ + "/steps.csv", steps_csv(run_.steps));
  write_text(folder_ + "/epochs.csv", epochs_csv(run_.epochs));
  steps_file_ = open_for_appending(folder_ + "/steps.csv");
  epochs_file_ = open_for_appending(folder_ + "/epochs.csv");
  // A run that starts afresh may find the events of one that was killed before its first checkpoint.
  events_.emplace(folder_, steps_before_ + 1);
}

void RunRecord::step_begins() {
  if (begun_ == (trace_path_.empty() ? first_traced_for_report : first_traced_for_file)) tracing_.emplace();
  if (tracing_ && traced_ >= (trace_path_.empty() ? traced_for_report : traced_for_file)) close_trace();
  if (tracing_ && waiting_since_) waits_.emplace_back(*waiting_since_, graph::Tracing::now());
  traced_ += tracing_ ? 1 : 0;
  ++begun_;
}

void RunRecord::step_ends() {
  if (tracing_) waiting_since_ = graph::Tracing::now();
}

void RunRecord::pause() {
  if (tracing_ && !tracing_->runs().empty()) close_trace();
  waiting_since_.reset();
  last_step_.reset();
}

void RunRecord::close_trace() {
  const std::vector<graph::TracedRun> runs = tracing_->runs();
  tracing_.reset();
  if (!runs.empty()) run_.operators = mean_times(runs, traced_);
  if (trace_path_.empty()) return;
  Trace trace;
  trace.add("step", runs);
  for (const auto& [begin, end] : waits_) trace.span("data", "wait for a batch", begin, end - begin);
  trace.write(trace_path_);
}

void RunRecord::add(StepMetrics step, std::int64_t examples) {
  step.seconds = seconds();
  if (last_step_) step.examples_per_second = static_cast<double>(examples) / std::max(step.seconds - *last_step_, 1e-9);
  last_step_ = step.seconds;
  if (folder_.empty()) return;
  open_files();
  run_.steps.push_back(step);
  append(steps_file_, without_header(steps_csv({step})), "steps.csv");
  events_->add(step.step, {{"training/loss", step.loss},
                           {"training/learning_rate", step.learning_rate},
                           {"training/gradient_norm", step.gradient_norm},
                           {"training/examples_per_second", step.examples_per_second}});
}

void RunRecord::add(EpochMetrics epoch, const std::optional<ConfusionMatrix>& confusion) {
  if (folder_.empty()) return;
  open_files();
  epoch.seconds = seconds();
  run_.epochs.push_back(epoch);
  append(epochs_file_, without_header(epochs_csv({epoch})), "epochs.csv");
  events_->add(epoch.step, {{"epoch/training_loss", epoch.training_loss},
                            {"epoch/training_accuracy", epoch.training_accuracy},
                            {"epoch/validation_loss", epoch.validation_loss},
                            {"epoch/validation_accuracy", epoch.validation_accuracy},
                            {"epoch/validation_top5", epoch.validation_top5},
                            {"epoch/validation_dice", epoch.validation_dice},
                            {"epoch/validation_iou", epoch.validation_iou}});
  if (confusion) {
    run_.confusion = confusion;
    write_text(folder_ + "/classes.csv", classes_csv(*confusion));
    write_text(folder_ + "/confusion.csv", confusion_csv(*confusion));
  }
  if (reported_ && epoch.seconds - *reported_ < report_interval) return;
  reported_ = epoch.seconds;
  write_report();
}

void RunRecord::finish() {
  finished_ = true;
  if (tracing_) close_trace();
  if (!trace_path_.empty() && traced_ == 0) warn(concat(printable(trace_path_), " was not written: no step followed the first"));
  write_report();
}

void RunRecord::write_report() const {
  if (!folder_.empty()) write_text(folder_ + "/report.html", report_html(run_));
}

}  // namespace frit::apps
