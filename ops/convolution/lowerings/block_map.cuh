#pragma once

#include <cstdint>

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/stages.cuh"

// Which element of an image is which of its blocks (see subpixel.h). Device code alone, which NVRTC compiles too.

namespace frit::ops {

/// Takes a number below the divisor out of `rest`.
template <class Integer>
__device__ Integer split(Integer& rest, const cuda::Divisor& size) {
  const Integer quotient = size.quotient(rest), place = size.remainder(rest, quotient);
  rest = quotient;
  return place;
}
/// Likewise an index of three numbers, the last innermost.
template <class Integer>
__device__ void split(Integer& rest, const cuda::Divisor (&sizes)[3], Integer (&index)[3]) {
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) index[axis] = split(rest, sizes[axis]);
}

/// An element, or several neighbouring channels, of the output.
struct BlockPlace {
  std::int64_t input;  ///< where the input holds it; -1: nowhere, it is 0
  int channel;         ///< of the image
  std::int64_t sample;
};

/// The elements of depth_to_space's or space_to_depth's output in the order of its memory, `width` channels at a time. An image of fewer
/// axes has ones in front.
struct BlockMap {
  bool channels_last;                               ///< the output's memory
  bool channels_first;                              ///< see BlockAttributes; one element at a time
  cuda::Divisor widths;                             ///< of the image's channels
  cuda::Divisor output[3], block[3];                ///< sizes
  int offset[3], image[3];                          ///< elements of the first block before the image; the image's sizes
  std::int64_t channels;                            ///< of the image
  std::int64_t places;                              ///< of a block
  std::int64_t sample_step, channel_step, step[3];  ///< of the input, which may have any strides

  /// Of depth_to_space's output.
  template <int width, class Integer>
  __device__ BlockPlace block_of(Integer item) const {
    Integer index[3], channel = 0;
    if (channels_last) channel = split(item, widths);
    split(item, output, index);
    if (!channels_last) channel = split(item, widths);
    Integer place = 0;
    std::int64_t offset_in = static_cast<std::int64_t>(item) * sample_step;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      Integer position = index[axis] + static_cast<Integer>(offset[axis]);
      const Integer in_block = split(position, block[axis]);
      place = place * block[axis].template value<Integer>() + in_block;
      offset_in += static_cast<std::int64_t>(position) * step[axis];
    }
    const int first = static_cast<int>(channel) * width;
    const auto in_block = static_cast<std::int64_t>(place);
    const std::int64_t channel_in = channels_first ? first * places + in_block : in_block * channels + first;
    return {offset_in + channel_in * channel_step, first, static_cast<std::int64_t>(item)};
  }

  /// Of space_to_depth's.
  template <int width, class Integer>
  __device__ BlockPlace pixel_of(Integer item) const {
    Integer index[3], place[3], channel = 0;
    const auto split_channel = [&] {
      if (channels_first) split(item, block, place);
      channel = split(item, widths);
      if (!channels_first) split(item, block, place);
    };
    if (channels_last) split_channel();
    split(item, output, index);
    if (!channels_last) split_channel();
    const int first = static_cast<int>(channel) * width;
    std::int64_t offset_in = static_cast<std::int64_t>(item) * sample_step + first * channel_step;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t pixel = static_cast<std::int64_t>(index[axis]) * block[axis].template value<std::int64_t>() +
                                 static_cast<std::int64_t>(place[axis]) - offset[axis];
      inside = inside && pixel >= 0 && pixel < image[axis];
      offset_in += pixel * step[axis];
    }
    return {inside ? offset_in : -1, first, static_cast<std::int64_t>(item)};
  }

  template <bool to_space, int width, class Integer>
  __device__ BlockPlace place_of(Integer item) const {
    if constexpr (to_space) {
      return block_of<width>(item);
    } else {
      return pixel_of<width>(item);
    }
  }
};

/// Blocks to the image, or back, between a Source and a Sink that lie channels-last: a thread has `width` channels of a pixel of the
/// output.
template <bool to_space, int width>
struct Rearrangement {
  BlockMap map;
  std::uint32_t vectors;  ///< of the output

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    const std::uint32_t vector = blockIdx.x * blockDim.x + threadIdx.x;
    if (vector >= vectors) return;
    const BlockPlace found = map.place_of<to_space, width>(vector);
    const stages::Place from{found.input, found.channel, static_cast<int>(found.sample)};
    const stages::Place to{static_cast<std::int64_t>(vector) * width, found.channel, static_cast<int>(found.sample)};
    const auto words = sink.template fetch<width>(to);
    cuda::Vector<typename Source::Computed, width> elements{};
    if (found.input >= 0) {
      elements =
          source.template values<width>(source.template fetch<width>(from), source.template channels<width>(from), stages::Nothing{});
    }
    sink.template store<width>(to, elements, words, sink.template channels<width>(to));
  }
};

}  // namespace frit::ops
