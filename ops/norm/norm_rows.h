#pragma once

#include "frit/ops/norm/norm_core.h"

namespace frit::ops {

// Norms whose slices are rows of neighbours, with a weight and a bias for each column: layer norm. On the CPU.

inline bool is_of_rows(const NormGeometry& geometry) {
  return geometry.weight_axis == WeightAxis::element && geometry.channels == geometry.run_length;
}

/// As run_norm.
void normalize_rows(const KernelContext& call, const NormGeometry& geometry, const SliceRule& rule);
/// As run_norm_backward.
void differentiate_rows(const KernelContext& call, const NormGeometry& geometry);
std::size_t row_gradients_scratch(const NormGeometry& geometry);

}  // namespace frit::ops
