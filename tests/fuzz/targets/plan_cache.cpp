#include "frit/core/plan_cache.h"

#include "fuzz/fuzzing.h"

namespace frit {
namespace {

struct Record {
  bool flag = false;
  std::int64_t count = 0;
  double time = 0;
  std::string form;

  void fields(FieldVisitor& v) {
    v.field("flag", flag);
    v.field("count", count);
    v.field("time", time);
    v.field("form", form);
  }
};

}  // namespace

FRIT_FUZZ_TARGET(plan_cache) {
  PlanCache cache(fuzzing::path_of(bytes));
  cache.size();
  cache.find<Record>("key");
}

}  // namespace frit
