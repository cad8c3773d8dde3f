#pragma once

#include <cmath>
#include <string>

#include "frit/core/tensor.h"

namespace frit::formula {

// The numbers that golden cases take for weights and inputs, so that no file has to hold them: those of tests/golden/formula.py.

/// Uniform in [-1, 1), float64, by a hash of the name and the element's number.
inline Tensor numbers(const std::string& name, const Shape& shape) {
  std::uint64_t seed = 0;
  for (std::size_t i = 0; i < name.size(); ++i) seed += (i + 1) * static_cast<unsigned char>(name[i]);
  const Tensor result = Tensor::empty(shape, DType::f64);
  std::uint64_t element = seed * 1000003;
  double* const end = result.data<double>() + result.elements();
  for (double* value = result.data<double>(); value != end; ++value) {
    std::uint64_t x = element++ * 2654435761 % (std::uint64_t{1} << 32);
    x ^= x >> 16;
    x = x * 2246822519 % (std::uint64_t{1} << 32);
    x ^= x >> 13;
    *value = static_cast<double>(x) / 2147483648.0 - 1;
  }
  return result;
}

/// Of a parameter or running statistic: weights by their fan-in, scales and variances from 0.5 to 1.5, the rest near 0.
inline Tensor initial(const std::string& name, const Shape& shape) {
  const Tensor result = numbers(name, shape);
  const bool weight = shape.rank() > 1, positive = name.ends_with("weight") || name.ends_with("running_var");
  const double fan_in = static_cast<double>(element_count(shape)) / static_cast<double>(weight ? shape[0] : 1);
  const double scale = weight ? std::sqrt(6 / fan_in) : positive ? 0.5 : 0.1, shift = weight || !positive ? 0 : 1;
  double* const end = result.data<double>() + result.elements();
  for (double* value = result.data<double>(); value != end; ++value) *value = shift + scale * *value;
  return result;
}

}  // namespace frit::formula
