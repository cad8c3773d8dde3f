#pragma once

#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/staged_call.h"

namespace frit::ops {

struct ChainAttributes {
  StagedCall call = {};

  void fields(FieldVisitor& v);
};

/// A call of `chain` in the three parts that it is made of.
struct ChainCall {
  const StagedCall& call;
  StagedCall::Parts<Tensor> inputs;
  std::vector<Tensor> centre_inputs;  ///< the one that a program gives is undefined

  explicit ChainCall(const KernelContext& context);

  Stages stages() const;
  /// As the centre's kernel sees it.
  KernelContext centre(const KernelContext& context) const;

 private:
  TensorType given_;
};

/// Computes the parts one after the other; what lies between them is in scratch memory.
void run_chain_in_parts(const KernelContext& call);
std::size_t chain_scratch_in_parts(const InferContext& call, Device device);

}  // namespace frit::ops
