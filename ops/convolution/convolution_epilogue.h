#pragma once

#include <algorithm>

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/libraries/convolution_epilogue.h"

namespace frit::ops {

/// Attributes of a convolution with an epilogue: a program whose input 0 is the convolution's result. Its others are images like the
/// result, or broadcast to it.
struct EpilogueOptions {
  ConvolutionOptions convolution;
  ElementwiseAttributes epilogue;

  void fields(FieldVisitor& v) {
    convolution.fields(v);
    epilogue.fields(v);
  }
  /// Inputs of the program after the convolution's result: the call's last ones.
  std::size_t other_operands() const { return static_cast<std::size_t>(std::max(epilogue.program.inputs - 1, 0)); }
};

/// The program as libraries know it, on operands of these types, the convolution's result first; none where it is no chain of few
/// activations and functions of the result so far and one operand each.
std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands);

/// For Operator::epilogue of the convolution `name`: the operator "<name>_epilogue".
std::function<std::optional<OperatorCall>(const Attributes&, const ElementwiseProgram&, std::span<const TensorType>)> with_epilogue(
    std::string name);

}  // namespace frit::ops
