#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Comparisons broadcast and give u8, 0 or 1; any comparison with NaN but not_equal is 0. Operator names are the functions'.
Value equal(Value a, Value b);
Value not_equal(Value a, Value b);
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
Value greater(Value a, Value b);
Value greater_equal(Value a, Value b);

/// condition (u8) ? a : b, broadcasting all three. Gradients: where(condition, g, 0) and where(condition, 0, g).
Value where(Value condition, Value a, Value b);

}  // namespace frit
