#pragma once

#include "frit/core/convert.h"
#include "frit/core/tensor.h"
#include "frit/ops/cuda/dispatch.cuh"

namespace frit::ops {

/// A parameter, or its gradient, of a kernel that reads data of type Stored: of the dtype that the data is stored in, or float32 with
/// halves.
template <class Stored>
class Parameter {
 public:
  using T = Computed<Stored>;

  Parameter() = default;
  /// May be undefined: nobody reads a gradient.
  explicit Parameter(const Tensor& tensor) {
    if (!tensor.defined()) return;
    const bool wide = is_half_type<Stored> && tensor.dtype() == DType::f32;
    if (wide) {
      wide_ = tensor.data<float>();
    } else {
      own_ = tensor.data<Stored>();
    }
  }

  __device__ T operator[](std::int64_t i) const {
    if constexpr (is_half_type<Stored>) {
      if (wide_ != nullptr) return wide_[i];
    }
    return convert<T>(own_[i]);
  }
  /// Does nothing to an undefined one.
  __device__ void set(std::int64_t i, T value) const {
    if (own_ != nullptr) own_[i] = convert<Stored>(value);
    if constexpr (is_half_type<Stored>) {
      if (wide_ != nullptr) wide_[i] = value;
    }
  }

 private:
  Stored* own_ = nullptr;
  float* wide_ = nullptr;
};

}  // namespace frit::ops
