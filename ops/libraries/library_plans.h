#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "frit/core/device.h"
#include "frit/core/fields.h"

namespace frit::ops {

/// A way in which a library computes a convolution. The engine and its knobs are the library's own numbers, which hold for one version.
struct LibraryPlan {
  std::int64_t engine = -1;
  std::string knobs = {};      ///< "2=8 14=3": settings, by their kind's number
  bool fused_bias = false;     ///< adds the bias itself; otherwise a pass of frit's does, where there is one
  bool fused_epilogue = false;  ///< likewise of the epilogue
  std::int64_t workspace = 0;   ///< bytes
  double microseconds = 0;      ///< bias and epilogue included; 0 where no time was taken

  void fields(FieldVisitor& v);
  bool is_same_algorithm(const LibraryPlan& other) const;
};

/// What was decided for one problem, and how.
struct PlanChoice {
  std::string problem;
  std::string decided;                  ///< "by time", "from the plan cache", "by heuristic"
  double seconds = 0;                   ///< that it took
  double building = 0;                  ///< of these, building plans before they were tried
  std::vector<LibraryPlan> plans = {};  ///< the one that is taken first; then all others that were tried
};

/// The choices of this process in order, for programs that show them. Thread-safe.
std::vector<PlanChoice> plan_choices();
void note_plan_choice(PlanChoice choice);
/// Is told each further choice, by the thread that made it; null: nobody is.
void set_plan_observer(std::function<void(const PlanChoice&)> observer);

/// While one lives, its thread loads another library, as the first convolution or product that needs it does.
class LibraryLoad {
 public:
  LibraryLoad();
  ~LibraryLoad();
  LibraryLoad(const LibraryLoad&) = delete;
  LibraryLoad& operator=(const LibraryLoad&) = delete;

  /// What all of them have taken, one within another counted once.
  static double milliseconds();

 private:
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace frit::ops
