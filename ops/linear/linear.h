#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

/// input (..., I) times weight (O, I) transposed, plus bias (O) or none -> (..., O).
Value linear(Value input, Value weight, Value bias = {});
/// (..., M, K) times (..., K, N) -> (..., M, N); leading axes broadcast. Rank 2 or more.
Value matmul(Value a, Value b);
/// The rows of weight (V, D) that indices (...), i64 or i32, name -> (..., D); the product with their one-hot matrix, (..., V). Gradients
/// of a row that is named more than once add up. An index outside [0, V) is an error on the CPU, and gives zeros on a GPU.
Value embedding(Value indices, Value weight);

}  // namespace frit
