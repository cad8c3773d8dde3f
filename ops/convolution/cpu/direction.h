#pragma once

#include "frit/ops/convolution/geometry.h"

namespace frit::ops {

/// What position j of a grid reads along one axis: source element j * step + offset + t * tap_offset for tap t, which is the kernel's
/// element first_tap + t * tap_step. Outside the source there are zeros.
struct AxisTaps {
  std::int64_t count;
  std::int64_t step, offset, tap_offset;
  std::int64_t first_tap, tap_step;
};
using Taps = std::array<AxisTaps, 3>;

/// One direction of a convolution: outputs (rows) that are sums of a source's channels at some taps. Backwards, the outputs whose
/// coordinates have one remainder by the stride see the same taps, at neighbouring source elements: each remainder is a convolution of
/// stride 1 of its own, a phase, whose position j stands for the output j * output_step + phase. Forwards there is one phase.
struct Direction {
  const ConvolutionGeometry& geometry;
  bool back;
  std::int64_t channels, rows;  ///< of one group, in the source and in the output
  ImageAxes source, output;
  ImageAxes output_step, phases, grid;

  static Direction forward(const ConvolutionGeometry& g);
  static Direction backward(const ConvolutionGeometry& g);

  std::int64_t phase_count() const { return product(phases); }
  Taps taps(const ImageAxes& phase) const;
};

/// body(phase, taps)
template <class Body>
void for_each_phase(const Direction& d, const Body& body) {
  ImageAxes phase;
  for (phase[0] = 0; phase[0] < d.phases[0]; ++phase[0]) {
    for (phase[1] = 0; phase[1] < d.phases[1]; ++phase[1]) {
      for (phase[2] = 0; phase[2] < d.phases[2]; ++phase[2]) body(phase, d.taps(phase));
    }
  }
}

}  // namespace frit::ops
