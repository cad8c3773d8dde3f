#pragma once

#include "frit/core/dtype.h"
#include "frit/ops/cuda/computed.cuh"

namespace frit::ops {

/// Calls `body` for f64, f32, f16 and bf16.
template <class Body>
void dispatch_floating_and_halves(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f16: return body.template operator()<Half>();
    case DType::bf16: return body.template operator()<BFloat16>();
    default: return dispatch_floating(dtype, body);
  }
}

}  // namespace frit::ops
