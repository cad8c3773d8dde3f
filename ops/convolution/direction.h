#pragma once

#include "frit/ops/convolution/patches.h"

namespace frit::ops {

/// One direction of a convolution: the product of a weight matrix and the patches of a source. Backwards, the outputs whose coordinates
/// have one remainder by the stride see the same taps, at neighbouring source elements: each remainder is a convolution of stride 1 of its
/// own, a phase, whose position j stands for the output j * output_step + phase. Forwards there is one phase.
struct Direction {
  const ConvolutionGeometry& geometry;
  bool back;
  std::int64_t channels, rows;  ///< of one group, in the source and in the output
  ImageAxes source, output;
  ImageAxes output_step, phases, grid;

  static Direction forward(const ConvolutionGeometry& g);
  static Direction backward(const ConvolutionGeometry& g);

  std::int64_t phase_count() const { return product(phases); }
  Patches patches(const ImageAxes& phase) const;
  /// The most rows that the patch matrix of a phase has.
  std::int64_t most_depth() const;
};

/// body(phase, patches, weights): `weights` is the number of weights that the phases before see, of all groups, rows and channels.
template <class Body>
void for_each_phase(const Direction& d, const Body& body) {
  std::int64_t weights = 0;
  ImageAxes phase;
  for (phase[0] = 0; phase[0] < d.phases[0]; ++phase[0]) {
    for (phase[1] = 0; phase[1] < d.phases[1]; ++phase[1]) {
      for (phase[2] = 0; phase[2] < d.phases[2]; ++phase[2]) {
        const Patches patches = d.patches(phase);
        body(phase, patches, weights);
        weights += d.geometry.groups * d.rows * d.channels * patches.taps_count();
      }
    }
  }
}

/// The element of the kernel that a tap of a phase is.
std::int64_t kernel_index(const Direction& d, const Patches& patches, std::int64_t tap);

}  // namespace frit::ops
