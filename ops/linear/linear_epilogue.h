#pragma once

#include <algorithm>
#include <optional>

#include "frit/ops/elementwise/epilogue.h"

namespace frit::ops {

/// Inputs of a linear layer's epilogue after the layer's result: the call's last ones.
inline std::size_t other_operands(const ElementwiseAttributes& epilogue) {
  return static_cast<std::size_t>(std::max(epilogue.program.inputs - 1, 0));
}

/// The program as libraries know it, on operands of these types, the first of which is the result (..., features).
std::optional<ConvolutionEpilogue> linear_epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands);

/// For Operator::epilogue.
std::optional<OperatorCall> linear_with_epilogue(const Attributes& own, const ElementwiseProgram& program,
                                                 std::span<const TensorType> inputs);

}  // namespace frit::ops
