#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

enum class Reduction { mean, sum, none };

Value mean_squared_error(Value prediction, Value target, Reduction reduction = Reduction::mean);
Value l1_loss(Value prediction, Value target, Reduction reduction = Reduction::mean);
/// logits (N, C, ...), target (N, ...) of class indices (i64) -> -log_softmax(logits)[target].
Value cross_entropy(Value logits, Value target, Reduction reduction = Reduction::mean);
/// target has the shape of logits, values in [0, 1].
Value binary_cross_entropy_with_logits(Value logits, Value target, Reduction reduction = Reduction::mean);

}  // namespace frit
