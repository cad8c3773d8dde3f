#pragma once

#include "frit/ops/chain/chain_attributes.h"

namespace frit::ops {

// A chain without a kernel that computes it at once: its calls one after the other, and what lies between them in scratch memory.

std::size_t scratch_in_parts(const InferContext& call, Device device);
void run_in_parts(const ChainCall& chain, const KernelContext& context);

}  // namespace frit::ops
