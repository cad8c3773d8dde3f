#pragma once

#include <vector>

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// How programs and files spell calls of an operator, with these attributes, otherwise than its `decompose` rule does, equal but for
/// rounding. Fusion finds them as it finds that one.
struct Spelling {
  std::string op;
  Attributes attributes;
  DecomposeRule rule;
};

/// All that there are; operators add their own when they are registered.
std::vector<Spelling>& spellings();

}  // namespace frit::ops
