#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Elementwise with NumPy broadcasting; both operands have one dtype. Operator names: add subtract multiply divide power minimum maximum.
// A plain number becomes a scalar constant of the other operand's dtype, which must have it.
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

// The handle `a` then stands for the result; its copies stay what they are.
inline Value& operator+=(Value& a, Value b) { return a = a + b; }
inline Value& operator-=(Value& a, Value b) { return a = a - b; }
inline Value& operator*=(Value& a, Value b) { return a = a * b; }
inline Value& operator/=(Value& a, Value b) { return a = a / b; }
inline Value& operator+=(Value& a, double b) { return a = a + b; }
inline Value& operator-=(Value& a, double b) { return a = a - b; }
inline Value& operator*=(Value& a, double b) { return a = a * b; }
inline Value& operator/=(Value& a, double b) { return a = a / b; }

Value power(Value base, Value exponent);
Value power(Value base, double exponent);
/// NaN if either is NaN; at a tie each operand gets half of the gradient.
Value minimum(Value a, Value b);
Value maximum(Value a, Value b);

}  // namespace frit
