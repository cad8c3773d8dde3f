#pragma once

#include "frit/ops/cpu/gemm.h"
#include "frit/ops/operator/attributes.h"
#include "frit/ops/operator/value.h"

namespace frit::ops {

struct MatmulAttributes {
  bool transpose_a = false;  ///< the last two axes of a are read the other way round
  bool transpose_b = false;

  void fields(FieldVisitor& v) {
    v.field("transpose_a", transpose_a);
    v.field("transpose_b", transpose_b);
  }
};

Value matmul(Value a, Value b, MatmulAttributes attributes);

/// The product of contiguous operands of these shapes.
GemmShape matmul_shape(const Shape& a, const Shape& b, const MatmulAttributes& attributes);
GemmShape linear_shape(const Shape& input, const Shape& weight);

/// (..., features) as (the product of the axes before, features).
Value as_rows(Value x);

}  // namespace frit::ops
