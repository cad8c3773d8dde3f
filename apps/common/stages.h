#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace frit::apps {

/// What the program spends its time on until the first result is there, in milliseconds.
class Stages {
 public:
  struct Stage {
    std::string name;
    double milliseconds;
  };

  /// The first stage is the process before its main function: the processor time that loading it took.
  Stages();
  /// Another stage ends here, having begun where the one before it ended.
  void done(const std::string& name);
  /// Likewise; a part of it counts as a stage of its own, with other parts of that name.
  void done(const std::string& name, const Stage& part);
  const std::vector<Stage>& list() const { return list_; }
  double total() const;

 private:
  std::chrono::steady_clock::time_point since_;
  std::vector<Stage> list_;
};

/// To be called first in the main function.
void note_process_start();

}  // namespace frit::apps
