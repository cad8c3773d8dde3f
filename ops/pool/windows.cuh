#pragma once

#include <cstdint>
#include <type_traits>

#include "frit/core/cuda/divisor.cuh"

namespace frit::ops {

// Windows of a pooling call on the device. `Index` is 32 bits wide where all places of a launch fit. NVRTC compiles this header too.

/// Places begin, begin + step, ... below `end`.
template <class Index>
struct PlaceRange {
  Index begin, end, step;

  __device__ bool empty() const { return begin >= end; }
  __device__ Index count() const { return empty() ? 0 : (end - begin + step - 1) / step; }
};

template <class Index>
struct PoolAxis {
  using Unsigned = std::make_unsigned_t<Index>;

  Index image, output, kernel, stride, padding, dilation;
  cuda::Divisor outputs{output}, strides{stride};

  __device__ Index window_begin(Index o) const { return o * stride - padding; }
  /// What a window has of the image.
  __device__ PlaceRange<Index> window(Index o) const {
    const Index first = window_begin(o);
    const Index begin = first >= 0 ? first : dilation == 1 ? 0 : first + (dilation - 1 - first) / dilation * dilation;
    return {begin, min(image, first + (kernel - 1) * dilation + 1), dilation};
  }
  /// The windows that reach a place, and with dilation perhaps some that step over it.
  __device__ PlaceRange<Index> windows(Index place) const {
    const Index last = place + padding, first = last - (kernel - 1) * dilation;
    const Index begin = first <= 0 ? 0 : quotient(first + stride - 1);
    return {begin, min(output, quotient(last) + 1), 1};
  }

 private:
  __device__ Index quotient(Index n) const { return static_cast<Index>(strides.quotient(static_cast<Unsigned>(n))); }
};

/// Takes the last axis off a row-major index.
template <class Index>
__device__ Index split_off(Index& index, const cuda::Divisor& size) {
  using Unsigned = std::make_unsigned_t<Index>;
  const auto whole = static_cast<Unsigned>(index);
  const Unsigned quotient = size.quotient(whole);
  index = static_cast<Index>(quotient);
  return static_cast<Index>(size.remainder(whole, quotient));
}

template <class Index>
struct PoolPlan {
  PoolAxis<Index> depth, height, width;

  __device__ Index image_elements() const { return depth.image * height.image * width.image; }
  __device__ Index place(Index d, Index h, Index w) const { return (d * height.image + h) * width.image + w; }
};

/// A window: which one it is of its plane, and what it has of the image.
template <class Index>
struct Window {
  Index plane, depth, height, width;
  PlaceRange<Index> depths, heights, widths;

  __device__ Window(const PoolPlan<Index>& pool, Index number) {
    width = split_off(number, pool.width.outputs);
    height = split_off(number, pool.height.outputs);
    depth = split_off(number, pool.depth.outputs);
    plane = number;
    depths = pool.depth.window(depth);
    heights = pool.height.window(height);
    widths = pool.width.window(width);
  }
  __device__ bool empty() const { return depths.empty() || heights.empty() || widths.empty(); }
};

// What becomes of a window's elements is the matter of a Reduction, with
//   State                                          the running state of a window
//   State begin(place) const;                      of a window whose first element has this place
//   static C missing();                            in the place of an element that does not exist
//   void take(State&, values, places) const;       some elements more
//   Vector<C, n> finish(i, pool, window, states) const;   the results i, i + 1, ... of neighbouring channels of one window
// and what a window hands back to an element that of a Share, with
//   Loaded<n> load<n>(i) const;                    what it knows of windows i, i + 1, ... of neighbouring channels, besides their gradients
//   void add(sums, gradients, loaded, pool, depth, height, width, place) const;   adds what the window there hands to the element there

/// Stands for the place of an element that is not there.
inline constexpr std::int32_t no_place = INT32_MAX;

}  // namespace frit::ops
