#pragma once

#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max.h"
#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.cuh"
#include "frit/ops/convolution/tiles/staged_taps.cuh"
#include "frit/ops/cuda/parameter.cuh"

// What the forward kernels share, on tensor cores and in strict float32.

namespace frit::ops {

/// The larger, or NaN if either is.
__device__ inline float larger(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ inline float smaller(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// A pixel's largest value so far, as an integer of the same order in which NaN is the largest, its channel, and the element that it was
/// made of.
struct Candidate {
  int key, channel;
  float element;

  /// The value is NaN as instructions make it, or not -0.
  __device__ static Candidate of(float value, int channel, float element) {
    const int bits = __float_as_int(value);
    return {bits ^ (bits >> 31 & INT32_MAX), channel, element};
  }
  __device__ float value() const { return __int_as_float(key ^ (key >> 31 & INT32_MAX)); }

  /// Takes the other if it is larger, or equal where it is the first of equals.
  __device__ void take(const Candidate& other, bool first) { replace(other, other.key > key - (first ? 1 : 0)); }
  __device__ void replace(const Candidate& other, bool really) {
    key = really ? other.key : key;
    channel = really ? other.channel : channel;
    element = really ? other.element : element;
  }
  __device__ Candidate from(int mask) const {
    return {__shfl_xor_sync(~0u, key, mask), __shfl_xor_sync(~0u, channel, mask), __shfl_xor_sync(~0u, element, mask)};
  }
};
/// As much of it as inference needs.
struct LargestValue {
  float largest;

  __device__ static LargestValue of(float value, int, float) { return {value}; }
  __device__ float value() const { return largest; }
  __device__ void take(const LargestValue& other, bool) { largest = larger(largest, other.largest); }
  __device__ void replace(const LargestValue& other, bool really) { largest = really ? other.largest : largest; }
  __device__ LargestValue from(int mask) const { return {__shfl_xor_sync(~0u, largest, mask)}; }
};

/// How what the convolution gives is written: (N, pixels, K) is channels-last, (N, K, pixels) contiguous.
enum class Write { not_at_all, channels_last, contiguous };

/// Where it goes.
template <class Stored>
struct Convolved {
  static constexpr int out_channels = static_cast<int>(ConvolutionInstanceNormMaxKernels::out_channels);  ///< K

  Write way;
  Stored* elements;
  std::int64_t pixels;

  explicit Convolved(const Tensor& tensor)
      : way(!tensor.defined()        ? Write::not_at_all
            : tensor.is_contiguous() ? Write::contiguous
                                     : Write::channels_last),
        elements(data_or_null<Stored>(tensor)),
        pixels(tensor.defined() ? Planes(tensor.shape()).pixels : 0) {}

  template <Write known_way>
  __device__ void write(Stored* sample, int pixel, int channel, const cuda::Vector<Stored, 4>& values) const {
    if constexpr (known_way == Write::channels_last) {
      cuda::store_vector(sample + (pixel * out_channels + channel), values);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) sample[(channel + i) * pixels + pixel] = values[i];
    }
  }
  template <Write known_way>
  __device__ cuda::Vector<Stored, 4> read(const Stored* sample, int pixel, int channel) const {
    if constexpr (known_way == Write::channels_last) {
      return *reinterpret_cast<const cuda::Vector<Stored, 4>*>(sample + (pixel * out_channels + channel));
    } else {
      cuda::Vector<Stored, 4> values;
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = sample[(channel + i) * pixels + pixel];
      return values;
    }
  }
};

/// inputs (image, weight, scale, post_scale, bias or none), outputs (output, argmax, mean, rstd, argmax_input, convolved)
template <class Stored>
struct ConvolutionMaximumCall {
  static constexpr int out_channels = Convolved<Stored>::out_channels;

  MaximumOutputs<Stored, std::uint8_t> outputs;
  FinalizeInstances<Stored> finalize;
  Convolved<Stored> convolved;
  KernelWeight<Stored> weight;
  bool biased;
  Parameter<Stored> bias;
  Clamp<float> clamp;

  explicit ConvolutionMaximumCall(const KernelContext& call)
      : outputs(MaximumOutputs<Stored, std::uint8_t>::of(call)),
        finalize(call, out_channels, call.as<ConvolutionInstanceNormMaxAttributes>().chain.eps, /*first=*/2),
        convolved(call.outputs[5]),
        weight(call.inputs[1]),
        biased(call.has(4)),
        bias(biased ? call.inputs[4] : Tensor()),
        clamp(call.as<ConvolutionInstanceNormMaxAttributes>().chain.clamp()) {}

  bool trains() const { return outputs.has_argmax() || convolved.way != Write::not_at_all; }
};

}  // namespace frit::ops
