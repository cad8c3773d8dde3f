#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Comparisons broadcast and give u8, 0 or 1; any comparison with NaN but not_equal is 0. Operator names are the functions'. A plain number
// becomes a scalar constant of the other operand's dtype, which must have it.
Value equal(Value a, Value b);
Value not_equal(Value a, Value b);
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
Value greater(Value a, Value b);
Value greater_equal(Value a, Value b);
Value equal(Value a, double b);
Value not_equal(Value a, double b);
Value less(Value a, double b);
Value less_equal(Value a, double b);
Value greater(Value a, double b);
Value greater_equal(Value a, double b);

// Of elements. a == b is another thing: whether both are handles of one value; elements are compared by equal(a, b).
inline Value operator<(Value a, Value b) { return less(a, b); }
inline Value operator<=(Value a, Value b) { return less_equal(a, b); }
inline Value operator>(Value a, Value b) { return greater(a, b); }
inline Value operator>=(Value a, Value b) { return greater_equal(a, b); }
inline Value operator<(Value a, double b) { return less(a, b); }
inline Value operator<=(Value a, double b) { return less_equal(a, b); }
inline Value operator>(Value a, double b) { return greater(a, b); }
inline Value operator>=(Value a, double b) { return greater_equal(a, b); }
inline Value operator<(double a, Value b) { return greater(b, a); }
inline Value operator<=(double a, Value b) { return greater_equal(b, a); }
inline Value operator>(double a, Value b) { return less(b, a); }
inline Value operator>=(double a, Value b) { return less_equal(b, a); }

// Of masks: any number but 0 is true; u8, 0 or 1.
Value logical_not(Value a);
Value logical_and(Value a, Value b);
Value logical_or(Value a, Value b);
Value logical_xor(Value a, Value b);

/// condition (u8) ? a : b, broadcasting all three. Gradients: where(condition, g, 0) and where(condition, 0, g).
Value where(Value condition, Value a, Value b);
Value where(Value condition, Value a, double b);
Value where(Value condition, double a, Value b);

}  // namespace frit
