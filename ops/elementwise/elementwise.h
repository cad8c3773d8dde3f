#pragma once

#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// A field of attributes that is a program or a call, as its text.
template <class Parsed>
void visit_text(FieldVisitor& v, const char* name, Parsed& value) {
  const std::string before = value.text();
  std::string text = before;
  v.field(name, text);
  if (text != before) value = Parsed::parse(text);
}

struct ElementwiseAttributes {
  ElementwiseProgram program;

  void fields(FieldVisitor& v) { visit_text(v, "program", program); }
};

/// The kernel of an operator with `inputs` inputs that computes each element of its output from those at its place.
Kernel map_kernel(KernelFunction run, int inputs, bool halves = false);
/// The same on the CPU, by what computes elements.
Kernel element_kernel(ElementRule rule, int inputs);

/// The functor of a call's attributes, if it takes any.
template <class Functor, class A>
Functor make_functor(const Attributes& attributes) {
  if constexpr (std::is_same_v<A, NoAttributes>) {
    return Functor{};
  } else {
    return Functor(attributes.as<A>());
  }
}

// What a program may have at most, so that it travels as a kernel's argument and its values fit into shared memory.
inline constexpr int most_program_inputs = 8, most_program_outputs = 4, most_instructions = 16, most_instruction_operands = 3;

/// For Kernel::any_layout_outputs and Operator::in_place of operators that compute programs: every output, and every output in any input's
/// memory.
std::vector<int> all_program_outputs();
std::vector<std::pair<int, int>> all_outputs_in_any_input();

/// An operand of an image's shape, or with a number for each channel, sample or both, as kernels read it.
inline bool lies_along(const Shape& operand, const Shape& image) {
  if (operand == image) return true;
  const int missing = image.rank() - operand.rank();
  for (int axis = 0; missing >= 0 && axis < operand.rank(); ++axis) {
    const std::int64_t size = operand[axis];
    if (size != 1 && (axis + missing >= 2 || size != image[axis + missing])) return false;
  }
  return missing >= 0;
}
/// An operand with a number for each pixel of an image: one channel for all of its.
inline bool lies_along_pixels(const Shape& operand, Shape image) {
  if (image.rank() < 3) return false;
  image[1] = 1;
  return operand == image;
}

}  // namespace frit::ops
