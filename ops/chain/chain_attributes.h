#pragma once

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
  Stages stages;
  KernelContext centre;                  ///< as its kernel sees it
  const StagedKernel* kernel = nullptr;  ///< that computes it at once; null where it is computed in its parts, or has one

  explicit ChainCall(const KernelContext& context);
  ChainCall(const ChainCall&) = delete;
};

/// The types of a chain's parts.
struct ChainTypes {
  std::vector<TensorType> centre_inputs, outputs;
  TensorType given = {}, result = {};  ///< by the program before; output 0 of the centre

  /// Says what is wrong, or returns nothing.
  std::string infer(const StagedCall& call, std::span<const TensorType> inputs);
};

/// A chain without a kernel that computes it at once: its calls one after the other, and what lies between them in scratch memory.
std::size_t scratch_in_parts(const InferContext& call, Device device);
void run_in_parts(const ChainCall& chain, const KernelContext& context);

/// On the device that the function names, with the centre's kernel of that kind where it takes the programs, else in its parts.
Kernel chain_kernel(Device (*device)(), Kernel Operator::*centre);
/// As Kernel::prepare.
void prepare_chain(const KernelContext& call);

std::vector<Sample> chain_samples();
std::vector<Sample> updating_chain_samples();
std::vector<Sample> synchronized_chain_samples();
std::vector<Sample> synchronized_updating_chain_samples();

}  // namespace frit::ops
