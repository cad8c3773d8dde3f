#pragma once

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/libraries/convolution_epilogue.h"

namespace frit::ops {

/// Attributes of a convolution with an epilogue: a program whose input 0 is the convolution's result. Its other one, if it has one, is the
/// residual, an image like the result.
struct EpilogueOptions {
  ConvolutionOptions convolution;
  ElementwiseAttributes epilogue;

  void fields(FieldVisitor& v) {
    convolution.fields(v);
    epilogue.fields(v);
  }
  bool adds_residual() const { return epilogue.program.inputs > 1; }
};

/// The program as libraries know it; none where it is no chain of few activations and at most one addition of the residual.
std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program);

/// For Operator::epilogue of the convolution `name`: the operator "<name>_epilogue".
std::function<std::optional<OperatorCall>(const Attributes&, const ElementwiseProgram&, std::span<const TensorType>)> with_epilogue(
    std::string name);

}  // namespace frit::ops
