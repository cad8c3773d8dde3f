#pragma once

#include "frit/ops/operator/elementwise_program.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// A call, and programs of elementwise operators before and after it; see Stages.
struct StagedCall {
  ElementwiseProgram before;  ///< of one result; without instructions: there is none
  int input = 0;              ///< of the call, that `before` gives
  OperatorCall centre;
  ElementwiseProgram after;  ///< its input 0 is the call's output 0; without instructions: there is none

  std::size_t before_inputs() const { return static_cast<std::size_t>(before.inputs); }
  std::size_t after_inputs() const { return after.instructions.empty() ? 0 : static_cast<std::size_t>(after.inputs) - 1; }

  /// The parts of the inputs of all.
  template <class T>
  struct Parts {
    std::span<const T> before, centre, after;  ///< centre: without the input that the program gives
  };
  template <class T>
  Parts<T> parts(std::span<const T> inputs) const {
    const std::size_t others = inputs.size() - before_inputs() - after_inputs();
    return {inputs.first(before_inputs()), inputs.subspan(before_inputs(), others), inputs.last(after_inputs())};
  }
  /// The call's inputs, `given` being what the program before it gives.
  template <class T>
  std::vector<T> centre_inputs(std::span<const T> others, const T& given) const {
    std::vector<T> inputs(others.begin(), others.end());
    if (!before.instructions.empty()) inputs.insert(inputs.begin() + input, given);
    return inputs;
  }
};

}  // namespace frit::ops
