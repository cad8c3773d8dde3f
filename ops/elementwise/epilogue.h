#pragma once

#include <optional>
#include <span>

#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/libraries/convolution_epilogue.h"

namespace frit::ops {

/// How an operand broadcasts to a result whose channels lie along that axis; none where it does otherwise, or has another dtype.
std::optional<ConvolutionEpilogue::Operand> epilogue_operand(const TensorType& operand, const TensorType& result, int channel_axis = 1);

/// The program as libraries know it, on operands of these types, the result first; none where it is no chain of few activations and
/// functions of the result so far and one operand each.
std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands,
                                               int channel_axis = 1);

/// The program's work by a pass over the result, its first input, where it lies. `scratch` as the operator "elementwise" wants it.
void apply_epilogue(const ElementwiseAttributes& epilogue, const Tensor& result, std::span<const Tensor> others,
                    std::span<std::byte> scratch = {}, CUstream_st* stream = nullptr);

}  // namespace frit::ops
