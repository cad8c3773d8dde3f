#pragma once

#include <cstdint>

namespace frit::ops {

/// The moments of an image's channels, of each sample in parts, in whatever order: of how many elements, their mean, and the sum of the
/// squares of their differences from it. Any part but the first may be of none, with zeros.
struct PartialMoments {
  static constexpr int count = 3;

  double* numbers = nullptr;  // (samples, channels, parts, count)
  std::int64_t parts = 0;     ///< 0: there are none
};

}  // namespace frit::ops
