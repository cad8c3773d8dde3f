#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/common/options.h"

namespace frit::apps {

/// The words with which this process was started; the first is the path of the program.
std::vector<std::string> own_command_line();

/// Starts the command line as `count` processes of this machine that train together, tells them so in their environment as torchrun does,
/// and waits for them. When one fails, the others are ended, in good order if they can within `seconds`, and one line on stderr names it.
/// SIGINT and SIGTERM are passed on; SIGTSTP stops all until this process goes on. Only the first writes to stdout. Returns the exit code:
/// that of the one that failed first.
int run_processes(const std::vector<std::string>& command_line, int count, double seconds = 10);

/// --gpus N.
struct GpuOption {
  std::optional<int> count = {};

  void add_to(CLI::App& command, const std::string& description);
  /// Whether this process is to start the others, and does nothing else. Throws ErrorKind::argument if the machine or another option speaks
  /// against it.
  bool starts_processes(const std::string& device) const;
};

}  // namespace frit::apps
