#pragma once

#include <cstdint>

#include "frit/ops/cuda/computed.cuh"

// What a kernel reads its data from and writes its result to: a tensor, or a program of elementwise operators on several. Kernels are
// templates over a Source and a Sink; those of tensors stand here and are compiled with frit, those of programs are written as text by
// ops/elementwise/compiled_stage.cu, for kernels that NVRTC compiles. So this header, and all that such a kernel includes, is device code
// alone.
//
// A Source has
//   Computed                                  the type that it gives elements in
//   Channels<width>; channels<width>(place)   what it needs of a vector's channels alone, which a kernel that keeps to them reads once
//   Words<width>; fetch<width>(place)         the operands of a vector as they are in memory, so that several are under way at once
//   values<width>(words, channels, beside)    the elements, a cuda::Vector<Computed, width>; `beside` are the words of another image that
//                                             the kernel reads at the same place, Nothing if it reads none: a program may read it too
// A Sink has Channels and Words likewise, of the operands that it reads besides, and
//   store<width>(place, elements, words, channels)   gives the elements as they are stored

namespace frit::ops::stages {

/// A vector of neighbouring channels of an image in channels-last layout.
struct Place {
  std::int64_t offset;  ///< of its first element, in a dense tensor of the image's shape
  int channel;          ///< the first one
  int sample;
};

struct Nothing {};

/// Where a vector lies in an image of so many channels whose pixels are `pitch` elements apart: more than these where it is a part of a
/// wider image.
template <int channels, int pitch>
__device__ std::int64_t place_in_part(const Place& place) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(place.offset - place.channel) / channels * pitch) + place.channel;
}
template <int channels, int pitch>
requires(channels == pitch) __device__ std::int64_t place_in_part(const Place& place) { return place.offset; }

/// A tensor, of the image's shape and layout.
template <class T>
struct Stored {
  using Computed = ops::Computed<T>;
  template <int width>
  using Words = cuda::VectorWords<T, width>;
  template <int width>
  using Channels = Nothing;

  const T* data;
  bool aligned;  ///< vectors begin where they may be read at once

  template <int width>
  __device__ Channels<width> channels(const Place&) const {
    return {};
  }
  template <int width>
  __device__ Words<width> fetch(const Place& place) const {
    return Words<width>::load(data + place.offset, aligned);
  }
  template <int width, class Beside = Nothing>
  __device__ cuda::Vector<Computed, width> values(const Words<width>& words, const Channels<width>&, const Beside& = {}) const {
    return converted<Computed, width>(words);
  }
};

/// A tensor that is written, of the image's shape and layout, or a part of one: see place_in_part.
template <class T, int image_channels = 1, int pitch = 1>
struct StoredSink {
  using Computed = ops::Computed<T>;
  template <int width>
  using Words = Nothing;
  template <int width>
  using Channels = Nothing;

  T* data;
  bool aligned;

  template <int width>
  __device__ Channels<width> channels(const Place&) const {
    return {};
  }
  template <int width>
  __device__ Words<width> fetch(const Place&) const {
    return {};
  }
  template <int width, class C>
  __device__ cuda::Vector<Computed, width> store(const Place& place, const cuda::Vector<C, width>& elements, const Words<width>&,
                                                 const Channels<width>&) const {
    const auto stored = converted<T, width>(elements);
    cuda::store_elements(data + place_in_part<image_channels, pitch>(place), stored, aligned);
    return converted<Computed, width>(stored);
  }
};

/// Stores some vectors of the same channels, those that exist, a few at a time, whose operands are under way at once. Bodies take a
/// vector's number.
template <int vectors, int width, class Sink, class Channels, class Exists, class PlaceOf, class Elements>
__device__ __forceinline__ void store_vectors(const Sink& sink, const Channels& channels, const Exists& exists, const PlaceOf& place,
                                              const Elements& elements) {
  constexpr int at_once = vectors < 4 ? vectors : 4;
#pragma unroll
  for (int begin = 0; begin < vectors; begin += at_once) {
    typename Sink::template Words<width> words[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (begin + k < vectors && exists(begin + k)) words[k] = sink.template fetch<width>(place(begin + k));
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (begin + k < vectors && exists(begin + k)) sink.template store<width>(place(begin + k), elements(begin + k), words[k], channels);
    }
  }
}

}  // namespace frit::ops::stages
