#pragma once

#include "frit/ops/operator/operator.h"

namespace frit::ops {

// Rules for Operator::average, of conv2d and conv3d and of the transposed ones, without groups.

Value average_of_convolution(std::span<const Value> inputs, const Attributes& attributes, const Averaging& averaging);
Value average_of_transposed(std::span<const Value> inputs, const Attributes& attributes, const Averaging& averaging);

}  // namespace frit::ops
