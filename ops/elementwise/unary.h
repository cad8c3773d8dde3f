#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Operator names are the functions'.
Value abs(Value x);  ///< gradient 0 at 0
Value exp(Value x);
Value log(Value x);
Value sqrt(Value x);
Value square(Value x);
Value reciprocal(Value x);

}  // namespace frit
