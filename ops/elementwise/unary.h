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
Value rsqrt(Value x);  ///< 1 / sqrt(x)
Value sin(Value x);
Value cos(Value x);
Value erf(Value x);
// Gradient 0 everywhere.
Value floor(Value x);
Value ceil(Value x);
Value round(Value x);          ///< halves to the even neighbour
Value sign(Value x);           ///< 0 at 0 and at NaN
Value stop_gradient(Value x);  ///< x itself

}  // namespace frit
