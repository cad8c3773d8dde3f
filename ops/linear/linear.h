#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

/// input (..., I) times weight (O, I) transposed, plus bias (O) or none -> (..., O).
Value linear(Value input, Value weight, Value bias = {});
/// (..., M, K) times (..., K, N) -> (..., M, N); leading axes broadcast. Rank 2 or more.
Value matmul(Value a, Value b);

}  // namespace frit
