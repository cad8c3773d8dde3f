#include "frit/ops/libraries/library_plans.h"

#include <atomic>
#include <mutex>

namespace frit::ops {
namespace {

struct Choices {
  std::mutex mutex;
  std::vector<PlanChoice> list;
  std::function<void(const PlanChoice&)> observer;
};

Choices& choices() {
  static Choices instance;
  return instance;
}

}  // namespace

void LibraryPlan::fields(FieldVisitor& v) {
  v.field("engine", engine);
  v.field("knobs", knobs);
  v.field("fused_bias", fused_bias);
  v.field("fused_epilogue", fused_epilogue);
  v.field("workspace", workspace);
  v.field("microseconds", microseconds);
}

bool LibraryPlan::is_same_algorithm(const LibraryPlan& other) const {
  return engine == other.engine && knobs == other.knobs && fused_bias == other.fused_bias && fused_epilogue == other.fused_epilogue;
}

std::vector<PlanChoice> plan_choices() {
  const std::lock_guard lock(choices().mutex);
  return choices().list;
}

void note_plan_choice(PlanChoice choice) {
  const std::lock_guard lock(choices().mutex);
  if (choices().observer) choices().observer(choice);
  choices().list.push_back(std::move(choice));
}

void set_plan_observer(std::function<void(const PlanChoice&)> observer) {
  const std::lock_guard lock(choices().mutex);
  choices().observer = std::move(observer);
}

namespace {

std::atomic<double> loading = 0;  // milliseconds
thread_local int depth = 0;

}  // namespace

LibraryLoad::LibraryLoad() : begin_(std::chrono::steady_clock::now()) { ++depth; }

LibraryLoad::~LibraryLoad() {
  if (--depth > 0) return;
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin_;
  loading.fetch_add(taken.count());
}

double LibraryLoad::milliseconds() { return loading; }

}  // namespace frit::ops
