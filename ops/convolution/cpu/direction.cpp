#include "frit/ops/convolution/cpu/direction.h"

#include <numeric>

namespace frit::ops {
namespace {

/// The taps k of one axis that a phase sees: those for which (phase + padding - k * dilation) is a multiple of the stride.
AxisTaps phase_taps(const ConvolutionGeometry& g, std::size_t axis, std::int64_t phase) {
  const std::int64_t common = std::gcd(g.stride[axis], g.dilation[axis]);
  AxisTaps taps{0, 1, 0, -g.dilation[axis] / common, 0, g.stride[axis] / common};
  for (std::int64_t k = 0; k < std::min(taps.tap_step, g.kernel[axis]); ++k) {
    const std::int64_t distance = phase + g.padding[axis] - k * g.dilation[axis];
    if (distance % g.stride[axis] != 0) continue;
    taps.first_tap = k;
    taps.offset = distance / g.stride[axis];
    taps.count = (g.kernel[axis] - k - 1) / taps.tap_step + 1;
    break;
  }
  return taps;
}

}  // namespace

Direction Direction::forward(const ConvolutionGeometry& g) {
  return {g, false, g.in_channels, g.out_channels, g.input, g.output, {1, 1, 1}, {1, 1, 1}, g.output};
}

Direction Direction::backward(const ConvolutionGeometry& g) {
  Direction d{g, true, g.out_channels, g.in_channels, g.output, g.input, g.stride, {}, {}};
  for (std::size_t i = 0; i < 3; ++i) {
    d.phases[i] = g.batch == 0 ? 1 : std::min(g.stride[i], g.input[i]);  // no more than there are outputs
    d.grid[i] = (g.input[i] + g.stride[i] - 1) / g.stride[i];
  }
  return d;
}

Taps Direction::taps(const ImageAxes& phase) const {
  Taps taps;
  for (std::size_t i = 0; i < 3; ++i) {
    taps[i] = back ? phase_taps(geometry, i, phase[i])
                   : AxisTaps{geometry.kernel[i], geometry.stride[i], -geometry.padding[i], geometry.dilation[i], 0, 1};
  }
  return taps;
}

}  // namespace frit::ops
