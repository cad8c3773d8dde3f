#pragma once

#include "frit/core/cuda/runtime.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/libraries/cuda/cudnn.h"
#include "frit/ops/operator/in_turn.h"

namespace frit::ops {

/// The CUDA kernel of a chain that a convolution is part of, or of its gradient: `own`, which multiplies the taps, for the calls that it
/// takes, and else the rule's calls in turn. Input `computed` is of the dtype that is computed with.
inline Kernel packed_kernel(const DecomposeRule& rule, std::size_t computed, Kernel own, bool (*takes)(const KernelContext&)) {
  own.halves = true;
  own.library = cudnn::version;
  own.describe = [computed](const KernelContext& call) { return schedule_of_taps(call.inputs[computed].dtype()); };
  return InTurn::kernel(rule, cuda::current_device, own, takes);
}

}  // namespace frit::ops
