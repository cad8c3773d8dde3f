#pragma once

#include <algorithm>
#include <compare>
#include <optional>
#include <vector>

#include "frit/ops/operator/library_functions.h"

namespace frit::ops {

/// What follows a convolution and its bias, element by element, in float32 where halves are stored.
struct ConvolutionEpilogue {
  /// A further operand: an image like the result, a number for each of its channels, of shape (C, 1, ...), or one number.
  enum class Operand { image, channels, number };

  /// An activation of what the steps before it give, or a function of that and an operand.
  struct Step {
    std::optional<Activation> activation = {};
    BinaryFunction function = BinaryFunction::add;
    int operand = 0;             ///< which one
    bool operand_first = false;  ///< it is the function's first argument

    friend auto operator<=>(const Step&, const Step&) = default;
  };

  std::vector<Step> steps = {};
  std::vector<Operand> operands = {};  ///< at most one is an image, and read by one step

  /// Made of rectifiers and a residual: there are kernels for that in libraries and in frit, which round no more than other kernels do.
  bool is_exact() const {
    const auto is_image = [](Operand operand) { return operand == Operand::image; };
    const auto is_plain = [](const Step& step) {
      return step.activation ? step.activation->kind == Activation::rectifier : step.function == BinaryFunction::add;
    };
    return std::all_of(operands.begin(), operands.end(), is_image) && std::all_of(steps.begin(), steps.end(), is_plain);
  }

  friend auto operator<=>(const ConvolutionEpilogue&, const ConvolutionEpilogue&) = default;
};

/// What an epilogue has at most.
inline constexpr int most_epilogue_steps = 6, most_epilogue_operands = 4;

}  // namespace frit::ops
