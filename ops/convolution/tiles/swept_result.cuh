#pragma once

#include <limits>

#include "frit/core/convert.h"
#include "frit/core/cuda/packed.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/core/cuda/vector.cuh"

// The epilogue of a swept convolution, see swept_rows.cuh.

namespace frit::ops {

inline constexpr int widest = 8;  ///< outputs that a thread stores at once

/// Activation::rectifier; any number stays as it is by default.
struct Rectifier {
  float low = -std::numeric_limits<float>::infinity(), high = -low, slope = 0;

  template <class T>
  __device__ T operator()(T x) const {
    const T below = slope == 0 ? low : low + slope * (x - low), raised = x < low ? below : x;
    return raised > high ? high : raised;
  }
};

/// What is done to the sums of products: + bias, + what the output holds, the rectifier `before`, + residual, the rectifier `after`.
template <class Stored>
struct SweptResult {
  Stored* output;          // (N, D, H, W, K)
  const Stored* bias;      // (K), or null
  const Stored* residual;  // like the output, or null
  bool adds, rectifies;
  Rectifier before, after;

  /// `widest` channels from `channel` on, at `place` of the output.
  __device__ void store(float (&values)[widest], std::int64_t place, int channel) const {
    if (bias != nullptr) add(values, bias + channel);
    if (adds) add(values, output + place);
    if (rectifies) {
#pragma unroll
      for (float& value : values) value = before(value);
      if (residual != nullptr) add(values, residual + place);
#pragma unroll
      for (float& value : values) value = after(value);
    } else if (residual != nullptr) {
      add(values, residual + place);
    }
    write(values, output + place);
  }

 private:
  __device__ static void add(float (&values)[widest], const Stored* from) {
    constexpr int width = cuda::vector_width<Stored>;
#pragma unroll
    for (int i = 0; i < widest; i += width) {
      const auto elements = cuda::VectorWords<Stored, width>::load(from + i, true);
#pragma unroll
      for (int k = 0; k < width; ++k) values[i + k] += convert<float>(elements[k]);
    }
  }
  __device__ static void write(const float (&values)[widest], Stored* to) {
    constexpr int width = cuda::vector_width<Stored>;
#pragma unroll
    for (int i = 0; i < widest; i += width) {
      if constexpr (is_half_type<Stored>) {
        cuda::Vector<std::uint32_t, width / 2> words;
#pragma unroll
        for (int k = 0; k < width / 2; ++k) words[k] = cuda::Packed<Stored>::narrow(values[i + 2 * k], values[i + 2 * k + 1]);
        cuda::store_vector(reinterpret_cast<std::uint32_t*>(to + i), words);
      } else {
        cuda::store_vector(to + i, cuda::WideVector<Stored>{values[i], values[i + 1], values[i + 2], values[i + 3]});
      }
    }
  }
};

}  // namespace frit::ops
