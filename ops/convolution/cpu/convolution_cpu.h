#pragma once

#include <functional>
#include <limits>

#include "frit/ops/convolution/cpu/direction.h"
#include "frit/ops/convolution/cpu/image.h"
#include "frit/ops/cpu/run_product.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

// A convolution on the CPU, in either direction, for float, double and maybe bfloat16, and its weight's gradient. Images and weights may
// lie in either layout: a contiguous source is brought into order where it is read, and an output where it is written.

/// How the two images of a direction lie.
struct ImageLayouts {
  ImagePlace source = {}, output = {};
};

/// What is done to elements of a result by the thread that has just computed them.
struct Finish {
  std::function<void(const Runs& elements, std::byte* workspace)> run = {};  ///< numbered as they lie in a whole image
  std::size_t workspace_bytes = 0;                                           ///< of each thread

  // Or else, while they are in registers: an image that lies as the result does is added, if there is one (see `adds_in_registers`), and
  // the sums are held between bounds.
  const void* addend = nullptr;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();

  template <class T>
  Rectifier<T> rectifier() const {
    return {static_cast<const T*>(addend), static_cast<T>(low), static_cast<T>(high)};
  }
};

/// Whether `convolve` can add an image to its results in registers.
bool adds_in_registers(const Direction& d, Layout output, std::size_t element_size);

/// Whether `convolve` takes a source that lies so and a weight in bfloat16, with sums in float32: the processor has instructions
/// for it. Their element size is then that of bfloat16.
bool convolves_in_bfloat(const Direction& d, Layout source);

/// How `convolve` computes: "in 4 x 4 tiles by Winograd's filtering".
const char* convolve_schedule(const Direction& d, std::size_t element_size);

/// How `convolve` takes a weight (K, C / groups, ...) for images that lie so.
struct Packing {
  std::int64_t elements;  ///< packed; 0: it packs part by part in any case
  bool needed;            ///< else it packs part by part what comes unpacked: each part is read once
};
Packing packing_of(const Direction& d, ImageLayouts layouts, std::size_t element_size);
template <class T>
void pack_weight(const Direction& d, ImageLayouts layouts, Image<const T> weight, T* packed);

template <class T>
struct Weight {
  const T* packed = nullptr;     ///< or null
  Image<const T> unpacked = {};  ///< not read if it is packed
};

/// Forwards the output (N, K, ...) from the source (N, C, ...) and a bias (K), backwards, as data gradients and transposed convolutions
/// are, one of C channels from a source of K. `bias` may be null. bfloat16 has to come packed.
template <class T, class A>
void convolve(const Direction& d, Image<const A> source, const Weight<A>& weight, const T* bias, Image<T> output,
              std::span<std::byte> scratch, const Finish& finish = {});
/// Bytes of scratch memory that it takes.
std::size_t convolve_scratch(const Direction& d, ImageLayouts layouts, std::size_t element_size, const Finish& finish = {});

/// The weight's gradient from that of a convolution's output, and its input, which is the source.
template <class T>
void convolve_weight_gradient(const ConvolutionGeometry& g, Image<const T> output, Image<const T> input, Image<T> weight,
                              std::span<std::byte> scratch);
std::size_t convolve_weight_gradient_scratch(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);
/// How that is computed.
const char* weight_gradient_schedule(const ConvolutionGeometry& g, ImageLayouts layouts, std::size_t element_size);

}  // namespace frit::ops
