#pragma once

#include <span>
#include <string_view>
#include <vector>

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
Value emit_with_sizes(std::string_view op, Value x, std::span<const Size> sizes, Shape& numbers);

// What functions that are made of several operators give to reshape and expand, so that they hold for other sizes, or say that they do not.

/// Those of all axes.
std::vector<Size> sizes_of(Value x);
/// A shape whose first size follows that of x, in the same proportion. Other sizes are numbers: where others are needed, reshape refuses.
std::vector<Size> with_batch_of(Value x, const Shape& shape);
Value reshape_to(Value x, std::span<const Size> sizes);
Value expand_to(Value x, std::span<const Size> sizes);

}  // namespace frit::ops
