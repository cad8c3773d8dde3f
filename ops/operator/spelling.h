#pragma once

#include <vector>

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// How programs and files spell calls of an operator, with these attributes, otherwise than its `decompose` rule does, equal but for
/// rounding. Fusion finds them as it finds that one.
struct Spelling {
  std::string op;
  Attributes attributes;
  DecomposeRule rule;                   ///< throws ErrorKind::argument for inputs of other types than it is for
  std::vector<TensorType> inputs = {};  ///< an example; missing: those of the operator's first sample
  DecomposeRule call = {};              ///< the call, where the operator takes its inputs in other shapes; missing: of these inputs
};

/// All that there are; operators add their own when they are registered.
std::vector<Spelling>& spellings();

}  // namespace frit::ops
