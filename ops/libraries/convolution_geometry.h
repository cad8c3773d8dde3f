#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace frit::ops {

using ImageAxes = std::array<std::int64_t, 3>;

/// The sizes of a convolution with three image axes; a two-dimensional one has depth 1. "input" and "output" are the convolution's also
/// where its gradients are computed: a transposed convolution goes from `output` to `input`.
struct ConvolutionGeometry {
  std::int64_t batch, groups;
  std::int64_t in_channels, out_channels;  ///< of one group
  ImageAxes input, output, kernel, stride, padding, dilation;

  friend auto operator<=>(const ConvolutionGeometry&, const ConvolutionGeometry&) = default;
};

/// Each channel has a kernel of its own.
inline bool is_depthwise(const ConvolutionGeometry& g) { return g.groups > 1 && g.in_channels == 1 && g.out_channels == 1; }

inline std::int64_t product(const ImageAxes& axes) { return axes[0] * axes[1] * axes[2]; }

}  // namespace frit::ops
