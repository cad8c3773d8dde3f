#pragma once

#include <functional>

#include "frit/ops/cpu/gemm.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// The product that inputs 0 and 1 of these shapes stand for.
using ProductRule = std::function<GemmShape(const Shape& a, const Shape& b, const Attributes&)>;

/// Computes it on the CPU, plus input 2, if there is one, for each column. A b that stays the same is packed once.
Kernel product_kernel(ProductRule shape);

}  // namespace frit::ops
