#pragma once

#include "frit/core/tensor.h"

namespace frit::cuda {

/// Numbers in [-1, 1) that look random, in a dense floating tensor, for timing: a GPU's power, and so its speed, depends on the data.
void fill_with_noise(const Tensor& tensor);

}  // namespace frit::cuda
