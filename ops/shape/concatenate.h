#pragma once

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// The axis that a call of "concatenate" joins along, from 0 on.
int concatenation_axis(const Attributes& attributes, int rank);

/// A call, one copy an input: of tensors that lie in any way.
void concatenate_in_turn(const KernelContext& call);

}  // namespace frit::ops
