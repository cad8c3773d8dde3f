#pragma once

#include <span>
#include <string>
#include <vector>

#include "frit/core/tensor.h"
#include "frit/ops/operator/staged_call.h"

namespace frit::ops {

/// The types of a chain's parts.
struct ChainTypes {
  std::vector<TensorType> centre_inputs, outputs;
  TensorType given = {}, result = {};  ///< by the program before; output 0 of the centre

  /// Says what is wrong, or returns nothing.
  std::string infer(const StagedCall& call, std::span<const TensorType> inputs);
};

}  // namespace frit::ops
