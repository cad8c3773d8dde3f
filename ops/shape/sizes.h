#pragma once

#include <span>
#include <string>
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

/// "<name>_to_sizes" of an operator that gives a shape, some of whose sizes are those of inputs' axes then. `infer` is its rule for a
/// shape, and `emit_plain` emits the operator itself once the sizes are known.
using ShapeRule = std::vector<TensorType> (*)(const InferContext&, const Shape&);
using EmitShape = Value (*)(Value, const Shape&);
Operator to_sizes(Operator plain, std::string summary, ShapeRule infer, EmitShape emit_plain, std::vector<Sample> (*samples)());

/// That operator with the value and those whose sizes it is given; the plain one if all are numbers.
Value emit_to_sizes(std::string_view op, Value x, std::span<const Size> sizes, EmitShape emit_plain);

// What functions that are made of several operators give to reshape and expand, so that they hold for other sizes, or say that they do not.

/// Those of all axes.
std::vector<Size> sizes_of(Value x);
/// A shape whose first size follows that of x, in the same proportion. Other sizes are numbers: where others are needed, reshape refuses.
std::vector<Size> with_batch_of(Value x, const Shape& shape);
Value reshape_to(Value x, std::span<const Size> sizes);
Value expand_to(Value x, std::span<const Size> sizes);

}  // namespace frit::ops
