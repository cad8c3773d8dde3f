#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

/// Zeroes each element with the given probability and scales the others by 1 / (1 - probability). `counter`, an i64 scalar variable, is
/// advanced at every run: the mask is Philox of (seed, the counter, the element). The identity at inference.
Value dropout(Value input, Value counter, double probability, std::uint64_t seed);

}  // namespace frit
