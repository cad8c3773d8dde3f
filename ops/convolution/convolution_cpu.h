#pragma once

#include <functional>

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/cpu/work_split.h"

namespace frit::ops {

// The three kernels of a convolution on the CPU, for float and double: `scratch` has the bytes that the function next to it tells.
// All tensors are contiguous. `bias` may be null.

/// What is done to elements of a result, by the thread that has just computed them.
struct Finish {
  std::function<void(const Runs& elements, std::byte* workspace)> run = {};
  std::size_t workspace_bytes = 0;  ///< of each thread
};

/// output (N, K, ...) from input (N, C, ...), weight (K, C / groups, ...) and bias (K).
template <class T>
void convolve(const ConvolutionGeometry& g, const T* input, const T* weight, const T* bias, T* output, std::span<std::byte> scratch,
              const Finish& finish = {});
std::size_t convolve_scratch(const ConvolutionGeometry& g, std::size_t element_size, const Finish& finish = {});

/// input (N, C, ...) from output (N, K, ...), weight and bias (C): the data gradient, and a transposed convolution.
template <class T>
void convolve_back(const ConvolutionGeometry& g, const T* output, const T* weight, const T* bias, T* input, std::span<std::byte> scratch);
std::size_t convolve_back_scratch(const ConvolutionGeometry& g, std::size_t element_size);

/// The weight's gradient from that of the output, and the input.
template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, const T* output, const T* input, T* weight, std::span<std::byte> scratch);
std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, std::size_t element_size);

}  // namespace frit::ops
