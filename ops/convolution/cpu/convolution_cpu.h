#pragma once

#include <functional>

#include "frit/ops/convolution/cpu/image.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

// The three kernels of a convolution on the CPU, for float and double. Images and weights may lie in either layout; channels-last images
// are read and written where they lie. `bias` may be null.

/// How the two images of a convolution lie.
struct ImageLayouts {
  Layout input = Layout::contiguous, output = Layout::contiguous;
};

inline Layout result_layout(const InferContext& call) {
  return call.layouts.outputs.empty() ? Layout::contiguous : call.layouts.outputs[0];
}

/// Bytes of an element as the CPU computes it: halves are float32.
inline std::size_t computed_size(DType dtype) { return std::max(size_of(dtype), sizeof(float)); }

/// What is done to elements of a result, numbered as they lie in memory, by the thread that has just computed them.
struct Finish {
  std::function<void(const Runs& elements, std::byte* workspace)> run = {};
  std::size_t workspace_bytes = 0;  ///< of each thread
};

/// How `convolve` computes: "in 4 x 4 tiles by Winograd's filtering"; or, with `back`, convolve_back.
const char* convolve_schedule(const ConvolutionGeometry& g, bool back, Layout result, std::size_t element_size);

/// output (N, K, ...) from input (N, C, ...), weight (K, C / groups, ...) and bias (K).
template <class T>
void convolve(const ConvolutionGeometry& g, Image<const T> input, Image<const T> weight, const T* bias, Image<T> output,
              std::span<std::byte> scratch, const Finish& finish = {});
/// Bytes of scratch memory that it takes.
std::size_t convolve_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size, const Finish& finish = {});

/// input (N, C, ...) from output (N, K, ...), weight and bias (C): the data gradient, and a transposed convolution.
template <class T>
void convolve_back(const ConvolutionGeometry& g, Image<const T> output, Image<const T> weight, const T* bias, Image<T> input,
                   std::span<std::byte> scratch);
std::size_t convolve_back_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

/// The weight's gradient from that of the output, and the input.
template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                              std::span<std::byte> scratch);
std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

}  // namespace frit::ops
