#pragma once

#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/elementwise/program.cuh"

// What the stages that are programs of elementwise operators are written in: see compiled_stage.cu, which writes them.

namespace frit::ops::program {

/// One element, for a whole vector, converted to T.
template <class T, int width, class Stored>
__device__ cuda::Vector<T, width> repeated(Stored value) {
  cuda::Vector<T, width> elements;
#pragma unroll
  for (int k = 0; k < width; ++k) elements[k] = convert<T>(value);
  return elements;
}

/// a + b, which the compiler does not make one operation with a product b: the bits would depend on whether that is stored as well.
__device__ inline float sum_of(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double sum_of(double a, double b) { return __dadd_rn(a, b); }

/// Elements of an operand from `first` on, which lie side by side and aligned.
template <class Stored, int width>
__device__ cuda::VectorWords<Stored, width> words_at(const void* data, std::int64_t first) {
  return cuda::VectorWords<Stored, width>::load(static_cast<const Stored*>(data) + first, true);
}
template <class Stored>
__device__ Stored element_at(const void* data, std::int64_t place) {
  return static_cast<const Stored*>(data)[place];
}

}  // namespace frit::ops::program
