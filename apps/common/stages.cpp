#include "apps/common/stages.h"

#include <algorithm>
#include <ctime>

namespace frit::apps {
namespace {

using Clock = std::chrono::steady_clock;

double before_main = 0;
Clock::time_point main_began = Clock::now();

}  // namespace

void note_process_start() {
  struct timespec spent = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  before_main = 1e3 * static_cast<double>(spent.tv_sec) + 1e-6 * static_cast<double>(spent.tv_nsec);
  main_began = Clock::now();
}

Stages::Stages() : since_(main_began), list_{{"process", before_main}} {}

void Stages::done(const std::string& name) {
  const Clock::time_point now = Clock::now();
  list_.push_back({name, std::chrono::duration<double, std::milli>(now - since_).count()});
  since_ = now;
}

void Stages::done(const std::string& name, const Stage& part) {
  done(name);
  list_.back().milliseconds -= part.milliseconds;
  const auto known = std::find_if(list_.begin(), list_.end(), [&](const Stage& stage) { return stage.name == part.name; });
  if (known == list_.end()) {
    list_.insert(list_.end() - 1, part);
  } else {
    known->milliseconds += part.milliseconds;
  }
}

double Stages::total() const {
  double sum = 0;
  for (const Stage& stage : list_) sum += stage.milliseconds;
  return sum;
}

}  // namespace frit::apps
