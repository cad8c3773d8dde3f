#pragma once

#include "frit/ops/norm/norm_core.h"

namespace frit::ops {

/// Attributes of norm_coefficients.
struct NormCoefficientsAttributes {
  Dims shape;                ///< of the results: (1 or N, C, 1, ...), as they broadcast to the data
  DType dtype = DType::f32;  ///< of the results

  void fields(FieldVisitor& v) {
    v.field("shape", shape);
    v.field("dtype", dtype);
  }
};

/// One channel of a slice: y = (x - reference) * scale + shift. The reference is the mean, rounded to T: the difference keeps the digits of
/// data far from zero, and is 0 where all elements are equal.
template <class T>
struct NormCoefficients {
  T reference, scale, shift;

  NormCoefficients() = default;
  FRIT_HOST_DEVICE NormCoefficients(double mean, double rstd, double weight, double bias)
      : reference(static_cast<T>(mean)),
        scale(static_cast<T>(rstd * weight)),
        shift(static_cast<T>(bias - (mean - static_cast<double>(reference)) * rstd * weight)) {}
};

/// Output 0 of a norm over channels, (N, C, ...), spelled with its outputs mean and rstd, its weight and its bias, as elementwise operators
/// that can be computed together with those that follow. None for data that is small.
Value normalized_by_coefficients(std::span<const Value> inputs, std::span<const Value> outputs, const NormGeometry& geometry);
/// The same for Operator::pointwise, A being the norm's attributes.
template <class A>
Values pointwise_norm(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes& attributes) {
  return {normalized_by_coefficients(inputs, outputs, norm_geometry(inputs[0].shape(), attributes.as<A>()))};
}

}  // namespace frit::ops
