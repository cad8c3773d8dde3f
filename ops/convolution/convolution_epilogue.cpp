#include "frit/ops/convolution/convolution_epilogue.h"

#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

using Operand = ConvolutionEpilogue::Operand;

/// How an operand broadcasts to the result; none where it does otherwise, or has another dtype.
std::optional<Operand> operand_kind(const TensorType& operand, const TensorType& result) {
  const int axes_before = result.shape.rank() - operand.shape.rank();
  if (operand == result) return Operand::image;
  if (operand.dtype != result.dtype || axes_before < 0) return std::nullopt;
  if (element_count(operand.shape) == 1) return Operand::number;
  for (int axis = 0; axis < operand.shape.rank(); ++axis) {
    const std::int64_t expected = axis + axes_before == 1 ? result.shape[1] : 1;
    if (operand.shape[axis] != expected) return std::nullopt;
  }
  return Operand::channels;
}

/// What an instruction does to the result so far; none where it is not one of an epilogue.
std::optional<ConvolutionEpilogue::Step> step_of(const ElementwiseProgram::Instruction& instruction, int result, int inputs) {
  const Operator& op = *instruction.op;
  const std::vector<int>& operands = instruction.operands;
  if (op.activation && operands[0] == result) {
    const std::optional<Activation> activation = op.activation(instruction.attributes);
    return activation ? std::optional(ConvolutionEpilogue::Step{activation}) : std::nullopt;
  }
  if (!op.binary) return std::nullopt;
  const bool operand_first = operands[1] == result;
  const int operand = operands[operand_first ? 0 : 1];
  const bool fits = (operand_first || operands[0] == result) && operand > 0 && operand < inputs;
  if (!fits || (operand_first && op.binary == BinaryFunction::divide)) return std::nullopt;
  return ConvolutionEpilogue::Step{.function = *op.binary, .operand = operand - 1, .operand_first = operand_first && !op.commutative};
}

}  // namespace

std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands) {
  ConvolutionEpilogue epilogue;
  if (std::ssize(operands) != program.inputs || program.inputs > 1 + most_epilogue_operands) return std::nullopt;
  if (program.instructions.empty() || program.instructions.size() > most_epilogue_steps) return std::nullopt;
  for (const TensorType& operand : operands.subspan(1)) {
    const std::optional<Operand> kind = operand_kind(operand, operands[0]);
    if (!kind) return std::nullopt;
    epilogue.operands.push_back(*kind);
  }
  std::vector<int> reads(epilogue.operands.size());
  int result = 0;
  for (const ElementwiseProgram::Instruction& instruction : program.instructions) {
    const std::optional<ConvolutionEpilogue::Step> step = step_of(instruction, result, program.inputs);
    if (!step) return std::nullopt;
    epilogue.steps.push_back(*step);
    if (!step->activation) ++reads[static_cast<std::size_t>(step->operand)];
    result = result == 0 ? program.inputs : result + 1;
  }
  int images = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (epilogue.operands[i] == Operand::image) images += reads[i];
    if (reads[i] == 0) return std::nullopt;
  }
  if (images > 1 || program.outputs != std::vector{result}) return std::nullopt;
  return epilogue;
}

}  // namespace frit::ops
