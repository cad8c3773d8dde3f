#pragma once

#include "frit/ops/operator/elementwise_program.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// A program of elementwise operators, and a reduction of some of its results.
struct ReducedProgram {
  ElementwiseProgram program;
  std::int64_t stored = 0;  ///< outputs of the program that are wanted as they are: the first ones
  Dims reduced = {};        ///< numbers of its outputs that are reduced, whether stored or not
  OperatorCall reduction = {};
};

}  // namespace frit::ops
