#pragma once

#include <algorithm>
#include <numeric>

#include "frit/core/convert.h"
#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/libraries/convolution_geometry.h"

// The image axes of depthwise convolutions. A convolution gathers its output from its input, its data gradient the input from the output:
// here that is the result from the source.

namespace frit::ops {

/// The taps that read for a position of the result, in the order of what they read.
struct DepthwiseTaps {
  int first, step, count;   ///< of the kernel's taps
  int source, source_step;  ///< where the first one reads

  /// Those that read on an axis of such a size.
  __device__ DepthwiseTaps within(int size) const {
    const auto up = [&](int distance) { return source_step == 1 ? distance : (distance + source_step - 1) / source_step; };
    const int begin = source < 0 ? up(-source) : 0, end = source < size ? min(up(size - source), count) : 0;
    return {first + begin * step, step, max(end - begin, 0), source + begin * source_step, source_step};
  }
};

struct DepthwiseAxis {
  int source, result;  ///< sizes
  int taps, stride, padding, dilation;
  bool backward;
  int tap_step, source_step;  ///< between the taps that read for a position, and between what they read
  cuda::Divisor strides, tap_steps;

  DepthwiseAxis(const ConvolutionGeometry& g, std::size_t axis, bool is_backward)
      : source(static_cast<int>(is_backward ? g.output[axis] : g.input[axis])),
        result(static_cast<int>(is_backward ? g.input[axis] : g.output[axis])),
        taps(static_cast<int>(g.kernel[axis])),
        stride(static_cast<int>(g.stride[axis])),
        padding(static_cast<int>(g.padding[axis])),
        dilation(static_cast<int>(g.dilation[axis])),
        backward(is_backward),
        tap_step(backward ? stride / std::gcd(stride, dilation) : 1),
        source_step(backward ? dilation / std::gcd(stride, dilation) : dilation),
        strides(stride),
        tap_steps(tap_step) {}

  /// Whether positions of the result that are `run_step` apart read neighbours, or every so manyth place, with the same taps.
  bool has_runs() const { return stride == 1 || (dilation == 1 && (backward || stride == 2)); }
  int run_step() const { return backward || stride == 1 ? stride * dilation : 1; }
  int most_taps() const { return (taps + tap_step - 1) / tap_step; }

  /// Negative where that is outside, or skipped by the stride.
  __device__ int source_of(int position, int tap) const {
    int at = position * stride - padding + tap * dilation;
    if (backward) {
      const int distance = position + padding - tap * dilation;
      at = distance / stride;
      if (at * stride != distance) return -1;
    }
    return at < source ? at : -1;
  }

  __device__ DepthwiseTaps taps_of(int position) const {
    if (!backward) return {0, 1, taps, position * stride - padding, source_step};
    const auto distance = static_cast<std::uint32_t>(position + padding), quotient = strides.quotient(distance);
    auto first = static_cast<int>(strides.remainder(distance, quotient)), at = static_cast<int>(quotient);
    if (dilation > 1) {
      const auto from = [&](int tap) { return position + padding - tap * dilation; };
      for (first = 0; first < tap_step && from(first) % stride != 0;) ++first;
      if (first == tap_step) first = taps;
      at = from(first) / stride;
    }
    if (first >= taps) return {0, 1, 0, 0, source_step};
    const auto more = static_cast<int>(tap_steps.quotient(static_cast<std::uint32_t>(taps - 1 - first)));
    return {first + more * tap_step, -tap_step, more + 1, at - more * source_step, source_step};
  }
};

inline int parts(std::int64_t count, std::int64_t size) { return static_cast<int>((count + size - 1) / size); }

/// Calls body.operator()<channels, taps, stride>() for 3 or 5 taps and a stride of 1 or 2.
template <int channels, class Body>
void dispatch_depthwise(int taps, int stride, const Body& body) {
  if (stride == 2) return taps == 3 ? body.template operator()<channels, 3, 2>() : body.template operator()<channels, 5, 2>();
  return taps == 3 ? body.template operator()<channels, 3, 1>() : body.template operator()<channels, 5, 1>();
}

/// Whether all sizes, and the places that they lead to, can be counted in an int.
inline bool has_depthwise_sizes(const ConvolutionGeometry& g) {
  constexpr std::int64_t most = 1 << 28, most_taps = 4096;
  bool small = g.groups <= most && product(g.kernel) <= most_taps;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t kernel = g.kernel[axis] * g.dilation[axis], output = g.output[axis] * g.stride[axis];
    small = small && g.input[axis] + 2 * g.padding[axis] + kernel <= most && output <= most;
  }
  if (!small) return false;
  const std::int64_t step = std::max({g.dilation[2], g.stride[2], g.input[2], g.output[2]});
  return step * g.groups <= INT32_MAX && g.input[0] * g.input[1] <= INT32_MAX && g.batch * g.output[0] * g.output[1] <= INT32_MAX;
}

}  // namespace frit::ops
