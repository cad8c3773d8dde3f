#pragma once

#include "frit/core/fields.h"
#include "frit/core/random.h"

namespace frit::ops {

struct DropoutAttributes {
  double probability = 0.5;
  std::int64_t seed = 0;  ///< the bits of the unsigned seed

  void fields(FieldVisitor& v) {
    v.field("probability", probability);
    v.field("seed", seed);
  }
};

/// Which elements dropout keeps: element i by word i % 4 of Philox (seed, counter, i / 4).
struct DropoutMask {
  std::uint64_t seed, counter;
  std::uint64_t threshold;  ///< words below it drop their element: probability * 2^32

  DropoutMask(std::uint64_t mask_seed, std::uint64_t mask_counter, double probability)
      : seed(mask_seed), counter(mask_counter), threshold(static_cast<std::uint64_t>(probability * 0x1p32)) {}

  /// Of elements 4 * quad ... 4 * quad + 3: 1 to keep, 0 to drop.
  FRIT_HOST_DEVICE std::array<std::uint8_t, 4> quad(std::uint64_t quad) const {
    const std::array<std::uint32_t, 4> words = philox(seed, counter, quad);
    return {keeps(words[0]), keeps(words[1]), keeps(words[2]), keeps(words[3])};
  }

 private:
  FRIT_HOST_DEVICE std::uint8_t keeps(std::uint32_t word) const { return static_cast<std::uint8_t>(word >= threshold); }
};

}  // namespace frit::ops
