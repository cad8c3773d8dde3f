#pragma once

#include <type_traits>

#include "frit/core/convert.h"
#include "frit/core/cuda/vector.cuh"

namespace frit::ops {

/// The type that elements of type T are computed with.
template <class T>
using Computed = std::conditional_t<is_half_type<T>, float, T>;

/// Some elements in another type.
template <class To, int width, class Elements>
__device__ cuda::Vector<To, width> converted(const Elements& elements) {
  cuda::Vector<To, width> result;
#pragma unroll
  for (int i = 0; i < width; ++i) result[i] = convert<To>(elements[i]);
  return result;
}

}  // namespace frit::ops
