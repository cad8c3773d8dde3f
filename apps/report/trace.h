#pragma once

#include "apps/common/json.h"
#include "frit/graph/profile.h"

namespace frit::apps {

/// Events in time, in the format of Chrome's tracing, which Perfetto opens.
class Trace {
 public:
  /// An event on a line of its own name; times in microseconds.
  void span(const std::string& line, const std::string& name, double begin, double duration, Json arguments = Json::object());
  /// Runs of an executable: an event for each run and operator, with its types and bytes, and how much memory is in use.
  void add(const std::string& what, const std::vector<graph::TracedRun>& runs);

  std::string json() const;
  /// Throws ErrorKind::file_system.
  void write(const std::string& path) const;

 private:
  int line_number(const std::string& line);
  void memory(double time, std::int64_t bytes);

  std::vector<std::string> lines_;
  Json events_ = Json::array();
};

}  // namespace frit::apps
