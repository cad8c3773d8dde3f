#pragma once

#include <string>
#include <vector>

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// A chain of elementwise operations as data. Values are numbered: the inputs 0, 1, ..., and after them the results in order.
struct ElementwiseProgram {
  struct Instruction {
    const Operator* op;
    Attributes attributes;
    std::vector<int> operands;  ///< earlier values
  };

  int inputs = 0;
  std::vector<Instruction> instructions;
  std::vector<int> outputs;  ///< results that leave the chain, each once

  /// "y0 = multiply(x0, x1); y1 = clamp(y0) {"min":0.0,"max":null}; return y1", where x are the inputs and y the results; empty if there
  /// are no instructions.
  std::string text() const;
  /// From such a text. Throws ErrorKind::format.
  static ElementwiseProgram parse(std::string_view text);

  int values() const { return inputs + static_cast<int>(instructions.size()); }
  /// By value: the last instruction that reads it, or -1.
  std::vector<int> last_reads() const;
  /// By value: which of the outputs it is, or -1.
  std::vector<int> output_numbers() const;

  /// Why these inputs cannot be computed with; empty if they can. The results must have one shape and floating type, or be u8 where they
  /// compare; float64 does not mix with the other floating types. If they can, `types` are those of all values.
  std::string check(std::span<const TensorType> given, std::vector<TensorType>& types) const;
};

/// Places for the values of a program that are `kept`, so that few are needed: a value's place is another's after its last reader has
/// finished, unless outputs stay to the end. All inputs have theirs from the beginning.
struct SlotPlan {
  std::vector<int> slots;  ///< by value; -1 where it is not kept
  int count = 0;

  SlotPlan(const ElementwiseProgram& program, const std::vector<bool>& kept, bool outputs_stay);
};

}  // namespace frit::ops
