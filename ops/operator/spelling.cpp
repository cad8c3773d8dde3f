#include "frit/ops/operator/spelling.h"

namespace frit::ops {

std::vector<Spelling>& spellings() {
  static std::vector<Spelling> all;
  return all;
}

}  // namespace frit::ops
