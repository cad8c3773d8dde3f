#pragma once

#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

struct ElementwiseAttributes {
  ElementwiseProgram program;

  void fields(FieldVisitor& v) {
    const std::string before = program.text();
    std::string text = before;
    v.field("program", text);
    if (text != before) program = ElementwiseProgram::parse(text);
  }
};

// What a program may have at most, so that it travels as a kernel's argument and its values fit into shared memory.
inline constexpr int most_program_inputs = 8, most_program_outputs = 4, most_instructions = 16, most_instruction_operands = 3;

}  // namespace frit::ops
