#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/cuda/planes.cuh"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {

// What the gradients of the fused chains share. In a channel of a sample the input's gradient is
//   (x - reference) * by_difference + offset
// and more where x won. A first kernel finds what the maxima get in addition, and the sums that the norm's gradient needs, from the small
// tensors alone; a second makes the rules of the sums; a third reads the input and writes its gradient, as fast as memory goes; a fourth
// adds up over the batch what the channels get.

/// Blocks along the axis of a grid that has the samples; a kernel goes on from there in steps of the grid.
inline unsigned sample_blocks(const Planes& planes) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(planes.samples, 1, UINT16_MAX));
}

/// 16 bytes that are not needed again soon: what is meant to stay in the cache goes before them. Always one access.
template <class V>
__device__ V load_streamed(const void* from) {
  static_assert(sizeof(V) == sizeof(uint4));
  const uint4 bytes = __ldcs(static_cast<const uint4*>(from));
  V result;
  memcpy(&result, &bytes, sizeof(V));
  return result;
}
template <class V>
__device__ void store_streamed(void* to, const V& value) {
  static_assert(sizeof(V) == sizeof(uint4));
  uint4 bytes;
  memcpy(&bytes, &value, sizeof(V));
  __stcs(static_cast<uint4*>(to), bytes);
}

/// The rules of all channels of all samples, each field (N, C).
template <class T>
struct GradientRules {
  T *reference, *by_difference, *offset;

  GradientRules(std::byte* memory, std::int64_t slices)
      : reference(reinterpret_cast<T*>(memory)), by_difference(reference + padded(slices)), offset(by_difference + padded(slices)) {}
  static std::size_t bytes(std::int64_t slices) { return static_cast<std::size_t>(3 * padded(slices)) * sizeof(T); }

  __device__ void set(std::int64_t slice, T new_reference, double new_by_difference, double new_offset) const {
    reference[slice] = new_reference;
    by_difference[slice] = static_cast<T>(new_by_difference);
    offset[slice] = static_cast<T>(new_offset);
  }

 private:
  static std::int64_t padded(std::int64_t slices) { return (slices + 15) / 16 * 16; }
};

/// Those of `width` neighbouring channels.
template <class T, int width>
struct RuleVector {
  using Fields = cuda::Vector<T, width>;
  Fields reference, by_difference, offset;

  __device__ RuleVector(const GradientRules<T>& rules, std::int64_t slice)
      : reference(*reinterpret_cast<const Fields*>(rules.reference + slice)),
        by_difference(*reinterpret_cast<const Fields*>(rules.by_difference + slice)),
        offset(*reinterpret_cast<const Fields*>(rules.offset + slice)) {}

  /// x less its reference, of channel j.
  __device__ T difference(int j, T x) const { return x - reference[j]; }
  __device__ T spread(int j, T x_difference) const { return fma(x_difference, by_difference[j], offset[j]); }
};

/// How write_elements deals out a tensor: a block has a chunk of the pixels of `lanes` channels, a thread `width` pixels at a time.
struct ElementSplit {
  static constexpr int steps = 16;  ///< of a thread

  int lanes = 1, width = 1, threads = cuda::default_threads;
  std::int64_t chunk_pixels, chunks, tiles;

  /// `vector` elements are 16 bytes.
  ElementSplit(const Planes& planes, bool channels_last, int vector) {
    if (channels_last) {
      lanes = lanes_for(planes.channels);
    } else {
      width = vector;
      const std::int64_t warps = (planes.pixels + width * cuda::warp_size - 1) / (width * cuda::warp_size);
      threads = cuda::warp_size * static_cast<int>(std::clamp<std::int64_t>(warps, 1, cuda::default_threads / cuda::warp_size));
    }
    chunk_pixels = static_cast<std::int64_t>(threads / lanes) * width * steps;
    chunks = (planes.pixels + chunk_pixels - 1) / chunk_pixels;
    tiles = (planes.channels + lanes - 1) / lanes;
  }
};

/// The input's gradient in any layout: more(gradient, n, c, p) adds what a maximum gets. Reads and writes each element once. Where wanted,
/// `differences` gets the chunks' sums of x - reference. A thread has the same elements whether memory allows vectors or not.
/// Deterministic.
template <class Stored, int width, class More>
__global__ void __launch_bounds__(cuda::default_threads)
    write_elements(Stored* input_gradient /* or null */, Computed<Stored>* differences /* (N, chunks, C), or null */, const Stored* input,
                   GradientRules<Computed<Stored>> rules, More more, Planes planes, Places places, Places gradient_places,
                   ElementSplit split, bool vectors) {
  using T = Computed<Stored>;
  using Elements = cuda::Vector<Stored, width>;
  __shared__ double shared[cuda::default_threads];
  const auto chunks = static_cast<unsigned>(split.chunks), tile = blockIdx.x / chunks, chunk = blockIdx.x - tile * chunks;
  const int lane = static_cast<int>(threadIdx.x) % split.lanes, row = static_cast<int>(threadIdx.x) / split.lanes;
  const std::int64_t c = static_cast<std::int64_t>(tile) * split.lanes + lane, step = static_cast<int>(blockDim.x) / split.lanes * width;
  const std::int64_t begin = chunk * split.chunk_pixels, end = min(planes.pixels, begin + split.chunk_pixels);
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    T sum = 0;
    if (c < planes.channels) {
      const RuleVector<T, 1> rule(rules, n * planes.channels + c);
      for (std::int64_t p = begin + row * width; p < end; p += step) {
        const Stored* const from = input + places(n, c, p);
        Elements x;
        if constexpr (width > 1) {
          if (vectors) x = load_streamed<Elements>(from);
        }
        if (!vectors) {
#pragma unroll
          for (int j = 0; j < width; ++j) x[j] = p + j < end ? from[j * places.pixel] : Stored(0);
        }
        Elements result;
#pragma unroll
        for (int j = 0; j < width; ++j) {
          if (p + j >= end) continue;
          const T difference = rule.difference(0, convert<T>(x[j]));
          sum += difference;
          result[j] = convert<Stored>(more(rule.spread(0, difference), n, c, p + j));
        }
        if (input_gradient == nullptr) continue;
        Stored* const to = input_gradient + gradient_places(n, c, p);
        if constexpr (width > 1) {
          if (vectors) store_streamed(to, result);
        }
        if (!vectors) {
#pragma unroll
          for (int j = 0; j < width; ++j) {
            if (p + j < end) to[j * gradient_places.pixel] = result[j];
          }
        }
      }
    }
    if (differences == nullptr) continue;
    const double total = sum_rows(static_cast<double>(sum), split.lanes, shared);
    if (row == 0 && c < planes.channels) differences[(n * split.chunks + chunk) * planes.channels + c] = static_cast<T>(total);
    __syncthreads();
  }
}

template <class Stored, class More>
void launch_write_elements(Stored* input_gradient, Computed<Stored>* differences, const Stored* input,
                           const GradientRules<Computed<Stored>>& rules, const More& more, const Planes& planes, const Places& places,
                           const Places& gradient_places, cudaStream_t stream) {
  constexpr int vector = cuda::vector_width<Stored>;
  const bool channels_last = places.channels_last();
  const ElementSplit split(planes, channels_last, vector);
  const bool vectors = !channels_last && !gradient_places.channels_last() && planes.pixels % vector == 0 &&
                       cuda::aligned_for_vectors(input) && cuda::aligned_for_vectors(input_gradient);
  FRIT_CHECK(split.chunks * split.tiles <= INT32_MAX);
  cuda::launch(channels_last ? write_elements<Stored, 1, More> : write_elements<Stored, vector, More>,
               {dim3(static_cast<unsigned>(split.chunks * split.tiles), sample_blocks(planes)), dim3(static_cast<unsigned>(split.threads))},
               stream, input_gradient, differences, input, rules, more, planes, places, gradient_places, split, vectors);
}

/// Whether a thread can have 16 bytes of a pixel's channels, always of the same ones, and count a sample's elements in 32 bits.
template <class Stored>
bool channels_in_vectors(const Planes& planes, const Places& places, const Places& gradient_places, const Stored* input,
                         const Stored* input_gradient) {
  constexpr int width = cuda::vector_width<Stored>;
  return places.channels_last() && gradient_places.channels_last() && planes.channels % width == 0 &&
         planes.channels / width <= cuda::default_threads && planes.channels * planes.pixels <= INT32_MAX &&
         cuda::aligned_for_vectors(input) && cuda::aligned_for_vectors(input_gradient);
}

/// A block of such threads: along x the channels of a pixel, along y so many pixels.
template <class Stored>
dim3 channel_vector_block(std::int64_t channels) {
  const auto lanes = static_cast<unsigned>(channels / cuda::vector_width<Stored>);
  return dim3(lanes, cuda::default_threads / lanes);
}

/// What one channel of one sample, or a part of it, adds up over its maxima.
template <class T>
struct ChannelSums {
  T gradient = 0, product = 0;  ///< of the gradient of the norm's result; of it times x less the mean or a number near it
  T factor = 0;                 ///< of the gradient of the factor after the norm

  template <class To>
  __device__ ChannelSums<To> to() const {
    return {static_cast<To>(gradient), static_cast<To>(product), static_cast<To>(factor)};
  }
  __device__ friend ChannelSums operator+(const ChannelSums& a, const ChannelSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.factor + b.factor};
  }
};

/// What one channel of one sample adds to the channel's gradients.
template <int count>
struct ChannelParts {
  double values[count] = {};

  __device__ friend ChannelParts operator+(const ChannelParts& a, const ChannelParts& b) {
    ChannelParts result;
#pragma unroll
    for (int k = 0; k < count; ++k) result.values[k] = a.values[k] + b.values[k];
    return result;
  }
};

/// What the last of the parts lacks: the sum of x - reference, times by_difference.
template <class T>
struct ChannelDifferences {
  const T* sums = nullptr;           ///< (N, chunks, C), or null
  const T* by_difference = nullptr;  ///< (N, C)
  std::int64_t chunks = 1;
};

/// The gradients of channels: outputs 1, 2, ... of a backward operator.
template <class Stored, int count>
struct ChannelResults {
  Parameter<Stored> of[count];  ///< each (C), or undefined

  explicit ChannelResults(const KernelContext& call) {
    for (std::size_t k = 0; k < count; ++k) of[k] = Parameter<Stored>(call.outputs[k + 1]);
  }
};

/// A block some channels of a sample: adds what the last of their parts lacks. Deterministic.
template <class T, int count>
__global__ void __launch_bounds__(cuda::default_threads)
    add_differences(ChannelParts<count>* parts /* (N, C) */, ChannelDifferences<T> differences, Planes planes) {
  constexpr int rows = cuda::default_threads / cuda::warp_size;
  __shared__ double shared[cuda::default_threads];
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size, row = static_cast<int>(threadIdx.x) / cuda::warp_size;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * cuda::warp_size + lane;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    double sum = 0;
    if (c < planes.channels) {
#pragma unroll 8
      for (std::int64_t chunk = row; chunk < differences.chunks; chunk += rows) {
        sum += static_cast<double>(differences.sums[(n * differences.chunks + chunk) * planes.channels + c]);
      }
    }
    sum = sum_rows(sum, cuda::warp_size, shared);
    if (row == 0 && c < planes.channels) {
      const std::int64_t slice = n * planes.channels + c;
      parts[slice].values[count - 1] += static_cast<double>(differences.by_difference[slice]) * sum;
    }
    __syncthreads();
  }
}

/// One block a channel: its sums over the batch. Deterministic.
template <class Stored, int count>
__global__ void sum_over_batch(ChannelResults<Stored, count> results, const ChannelParts<count>* parts /* (N, C) */, Planes planes) {
  __shared__ ChannelParts<count> shared[cuda::warp_size];
  for (std::int64_t c = blockIdx.x; c < planes.channels; c += gridDim.x) {
    ChannelParts<count> total;
    for (std::int64_t n = threadIdx.x; n < planes.samples; n += blockDim.x) total = total + parts[n * planes.channels + c];
    total = cuda::block_reduce(total, shared);
    if (threadIdx.x != 0) continue;
#pragma unroll
    for (int k = 0; k < count; ++k) results.of[k].set(c, static_cast<Computed<Stored>>(total.values[k]));
  }
}

/// Writes the call's ChannelResults. Adds the differences to the parts first, where there are any.
template <class Stored, int count>
void launch_sum_over_batch(const KernelContext& call, ChannelParts<count>* parts, const ChannelDifferences<Computed<Stored>>& differences,
                           const Planes& planes) {
  if (planes.channels == 0) return;
  if (differences.sums != nullptr && planes.samples > 0) {
    const dim3 grid(static_cast<unsigned>((planes.channels + cuda::warp_size - 1) / cuda::warp_size), sample_blocks(planes));
    cuda::launch(add_differences<Computed<Stored>, count>, {grid, dim3(cuda::default_threads)}, call.stream, parts, differences, planes);
  }
  cuda::launch(sum_over_batch<Stored, count>, cuda::loop_shape(planes.channels * cuda::default_threads), call.stream,
               ChannelResults<Stored, count>(call), parts, planes);
}

}  // namespace frit::ops
