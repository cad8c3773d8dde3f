#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace frit::apps {

/// Shows on stderr how far some work has come: a bar that is drawn over itself on a terminal, otherwise a line for each tenth, but no more
/// than one a second.
class Progress {
 public:
  enum class Style { none, lines, bar };

  /// `total` and `before` count what all the work consists of and what of it was done earlier, for the time left.
  Progress(std::string label, std::string unit, std::int64_t count, std::int64_t total, std::int64_t before, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `remark` stands after the rate: "loss 0.31".
  void update(std::int64_t done, const std::string& remark);
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  void draw(std::int64_t done, const std::string& remark);

  std::string label_, unit_;
  std::int64_t count_, total_, before_;
  Style style_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  std::int64_t tenth_ = 0;  ///< tenths that have been told
  bool visible_ = false;    ///< a bar stands on the terminal's line
};

}  // namespace frit::apps
