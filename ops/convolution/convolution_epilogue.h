#pragma once

#include "frit/ops/libraries/convolution_epilogue.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// A program after a convolution as libraries know it, on operands of these types, the convolution's result first; none where it is no line
/// of few activations and functions of the result so far and one operand each.
std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands);

}  // namespace frit::ops
