#pragma once

#include <type_traits>

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/cuda/planes.cuh"

// Where an input in blocks and the output that belongs to it lie.

namespace frit::ops {

/// Where the elements of a tensor (N, block * C, pixels) lie, seen as planes (N * block, C, pixels), in either layout.
struct BlockedPlaces : Places {
  std::uint32_t block;
  std::int64_t place;  ///< the step from place to place in a block

  BlockedPlaces(const Tensor& tensor, std::int64_t places)
      : Places(tensor, Planes(tensor.shape())),
        block(static_cast<std::uint32_t>(places)),
        place(tensor.shape()[1] / places * channel) {}

  __device__ std::int64_t operator()(std::int64_t n, std::int64_t c, std::int64_t p) const {
    const std::int64_t first = block == 1 ? n * sample : n / block * sample + n % block * place;
    return first + c * channel + p * pixel;
  }
};

/// Where pixels lie in the output.
struct OutputPlaces {
  bool blocked, wide, positions_innermost;  ///< positions_innermost: of the pixels, before places in a block
  cuda::Divisor positions[3], block[3];
  cuda::Divisor places;  ///< in a block
  int blocks[3] = {1, 1, 1}, offset[3] = {}, size[3] = {1, 1, 1};

  OutputPlaces(const Shape& input, const LogsumexpSigmoidScaleSubtractClampAttributes& a, bool positions_first)
      : blocked(a.blocked()),
        wide(input[0] * a.block() * product(image_of(input)) > INT32_MAX),
        positions_innermost(positions_first),
        places(a.block()) {
    const int rank = a.blocks.block.rank();
    for (int axis = 0; axis < 3; ++axis) {
      const int given = axis - (3 - rank);
      positions[axis] = cuda::Divisor(given < 0 ? 1 : std::max<std::int64_t>(1, input[given + 2]));
      block[axis] = cuda::Divisor(given < 0 ? 1 : a.blocks.block[given]);
      if (given < 0) continue;
      blocks[axis] = static_cast<int>(a.blocks.block[given]);
      offset[axis] = static_cast<int>(a.blocks.offset[given]);
      size[axis] = static_cast<int>(a.blocks.size[given]);
    }
  }

  /// -1 if the pixel is cut off.
  __device__ std::int64_t operator()(std::int64_t pixel) const {
    if (!blocked) return pixel;
    return wide ? find(static_cast<std::uint64_t>(pixel)) : find(static_cast<std::uint32_t>(pixel));
  }

 private:
  template <class Integer>
  __device__ std::int64_t find(Integer rest) const {
    Integer position[3], place[3];
    if (positions_innermost) {
      split(rest, positions, position);
      split(rest, block, place);
    } else {
      split(rest, block, place);
      split(rest, positions, position);
    }
    std::make_signed_t<Integer> result = rest;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const auto element = static_cast<std::make_signed_t<Integer>>(position[axis] * blocks[axis] + place[axis]) - offset[axis];
      inside = inside && element >= 0 && element < size[axis];
      result = result * size[axis] + element;
    }
    return inside ? result : -1;
  }
  template <class Integer>
  __device__ static void split(Integer& rest, const cuda::Divisor (&sizes)[3], Integer (&digits)[3]) {
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      const Integer quotient = sizes[axis].quotient(rest);
      digits[axis] = sizes[axis].remainder(rest, quotient);
      rest = quotient;
    }
  }
};

}  // namespace frit::ops
