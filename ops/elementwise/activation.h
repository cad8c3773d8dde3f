#pragma once

#include <optional>

#include "frit/ops/operator/value.h"

namespace frit {

/// min(max(x, min), max); NaN everywhere if a bound is NaN. At least one bound. Gradient 1 where min <= x <= max, bounds included; 0
/// elsewhere and at NaN.
Value clamp(Value x, std::optional<double> min, std::optional<double> max);
Value relu(Value x);  ///< gradient 0 at 0, 1 at NaN
Value leaky_relu(Value x, double negative_slope = 0.01);
Value elu(Value x, double alpha = 1);
enum class GeluForm { erf, tanh };
Value gelu(Value x, GeluForm form = GeluForm::erf);
Value sigmoid(Value x);
Value tanh(Value x);
Value silu(Value x);
Value mish(Value x);
Value softplus(Value x, double beta = 1, double threshold = 20);
Value hard_sigmoid(Value x);
Value hard_swish(Value x);
/// x where it is positive, else x times weight: (1), or (C) for images (N, C, ...). Made of other operators.
Value prelu(Value x, Value weight);

}  // namespace frit
