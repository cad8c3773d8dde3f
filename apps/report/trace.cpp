#include "apps/report/trace.h"

#include <algorithm>

#include "frit/core/io/file.h"

namespace frit::apps {
namespace {

constexpr int process = 1;

}  // namespace

int Trace::line_number(const std::string& line) {
  const auto known = std::find(lines_.begin(), lines_.end(), line);
  if (known != lines_.end()) return static_cast<int>(known - lines_.begin()) + 1;
  lines_.push_back(line);
  return static_cast<int>(lines_.size());
}

void Trace::span(const std::string& line, const std::string& name, double begin, double duration, Json arguments) {
  events_.push_back({{"ph", "X"},
                     {"name", name},
                     {"cat", line},
                     {"pid", process},
                     {"tid", line_number(line)},
                     {"ts", begin},
                     {"dur", duration},
                     {"args", std::move(arguments)}});
}

void Trace::add(const std::string& what, const std::vector<graph::TracedRun>& runs) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const graph::TracedRun& run = runs[r];
    span("runs", concat(what, ' ', r + 1), run.marks.front(), run.marks.back() - run.marks.front());
    for (std::size_t s = 0; s < run.steps->size(); ++s) {
      const graph::TracedStep& step = (*run.steps)[s];
      const double begin = run.marks[s], duration = run.marks[s + 1] - begin;
      Json arguments = {{"types", step.types}, {"bytes", step.bytes}};
      if (!step.schedule.empty()) arguments["schedule"] = step.schedule;
      if (duration > 0) arguments["gigabytes_per_second"] = 1e-3 * static_cast<double>(step.bytes) / duration;
      span("operators", step.op, begin, duration, std::move(arguments));
      memory(begin, step.alive);
    }
    memory(run.marks.back(), 0);
  }
}

void Trace::memory(double time, std::int64_t bytes) {
  events_.push_back({{"ph", "C"}, {"name", "memory in use"}, {"pid", process}, {"ts", time}, {"args", {{"bytes", bytes}}}});
}

std::string Trace::json() const {
  Json events = Json::array();
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", "frit"}}}});
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", i + 1}, {"args", {{"name", lines_[i]}}}});
    events.push_back({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", process}, {"tid", i + 1}, {"args", {{"sort_index", i}}}});
  }
  events.insert(events.end(), events_.begin(), events_.end());
  return Json({{"displayTimeUnit", "ms"}, {"traceEvents", events}}).dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

void Trace::write(const std::string& path) const { write_text(path, json()); }

}  // namespace frit::apps
