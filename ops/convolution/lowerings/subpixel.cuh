#pragma once

#include "frit/ops/convolution/lowerings/block_map.cuh"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/elementwise/pointwise.cuh"

// What the kernels of sub-pixel convolutions share: numbers of elements taken apart into indices.

namespace frit::ops::subpixel {

/// Launches with fewer elements count in 32 bits.
inline constexpr std::int64_t most_narrow = std::int64_t{1} << 30;

/// One number an image axis, missing axes in front.
struct Axes {
  int values[3];

  Axes(const Dims& dims, int missing) {
    for (int axis = 0; axis < 3; ++axis) {
      const int given = axis - (3 - dims.rank());
      values[axis] = given < 0 ? missing : static_cast<int>(dims[given]);
    }
  }
  __device__ int operator[](int axis) const { return values[axis]; }
};

/// The sizes of an index of three numbers, the last innermost.
struct Sizes {
  cuda::Divisor values[3];

  explicit Sizes(const Dims& dims) {
    for (int axis = 0; axis < 3; ++axis) {
      const int given = axis - (3 - dims.rank());
      values[axis] = cuda::Divisor(given < 0 ? 1 : std::max<std::int64_t>(1, dims[given]));
    }
  }
};

/// The steps of a tensor (N, C, image) of any strides.
struct Steps {
  std::int64_t sample, channel, image[3] = {};

  explicit Steps(const Tensor& tensor) : sample(tensor.strides()[0]), channel(tensor.strides()[1]) {
    for (int axis = 2; axis < tensor.rank(); ++axis) image[3 - tensor.rank() + axis] = tensor.strides()[axis];
  }
};

/// The elements of a dense tensor (N, C, image) in the order of its memory, `width` channels at a time.
struct Elements {
  bool channels_last;
  cuda::Divisor channels;
  Sizes image;

  Elements(const Tensor& tensor, int width)
      : channels_last(!tensor.is_contiguous()),
        channels(std::max<std::int64_t>(1, tensor.dim(1) / width)),
        image(image_of(tensor.shape())) {
    FRIT_CHECK(!channels_last || tensor.is_contiguous(Layout::channels_last));
  }

  /// Leaves the sample in `rest`, and gives the channel, counted in widths.
  template <class Integer>
  __device__ Integer find(Integer& rest, Integer (&index)[3]) const {
    if (channels_last) {
      const Integer channel = split(rest, channels);
      split(rest, image.values, index);
      return channel;
    }
    split(rest, image.values, index);
    return split(rest, channels);
  }
};

/// Calls body.operator()<Integer>() with an unsigned type that numbers the elements.
template <class Body>
void dispatch_count(std::int64_t elements, const Body& body) {
  if (elements <= most_narrow) {
    body.template operator()<std::uint32_t>();
  } else {
    body.template operator()<std::uint64_t>();
  }
}

}  // namespace frit::ops::subpixel
