#pragma once

#include <string_view>

#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {

/// A shape of which some sizes are those of the inputs' axes. An entry an axis.
struct SizesAttributes {
  Dims numbers;  ///< the size itself, or
  Dims inputs;   ///< the input whose axis it is; -1: the number is it
  Dims axes;
  Dims times, over;  ///< what it is multiplied and then divided by

  void fields(FieldVisitor& v) {
    v.field("numbers", numbers);
    v.field("inputs", inputs);
    v.field("axes", axes);
    v.field("times", times);
    v.field("over", over);
  }
};

/// The sizes in numbers.
Shape resolve_sizes(const InferContext& call);

/// The shape of such an operator's result.
Shape shape_of_call(const char* op, std::span<const Value> inputs, const Attributes& attributes);

/// The operator with the value and those whose sizes it is given; nothing if all are numbers, which `numbers` then has.
Value emit_with_sizes(std::string_view op, Value x, std::initializer_list<Size> sizes, Shape& numbers);

}  // namespace frit::ops
