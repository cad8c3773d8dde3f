#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Elementwise with NumPy broadcasting; both operands have one dtype. Operator names: add subtract multiply divide power minimum maximum.
// A plain number becomes a scalar constant of the other operand's dtype.
Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator+(Value a, double b);
Value operator-(Value a, double b);
Value operator*(Value a, double b);
Value operator/(Value a, double b);
Value operator+(double a, Value b);
Value operator-(double a, Value b);
Value operator*(double a, Value b);
Value operator/(double a, Value b);
Value operator-(Value a);  ///< operator "negate"

Value power(Value base, Value exponent);
Value power(Value base, double exponent);
/// NaN if either is NaN; at a tie each operand gets half of the gradient.
Value minimum(Value a, Value b);
Value maximum(Value a, Value b);

}  // namespace frit
