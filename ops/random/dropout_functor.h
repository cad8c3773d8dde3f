#pragma once

#include <cstdint>

#include "frit/core/fields.h"
#include "frit/core/half.h"

namespace frit::ops {

struct DropoutBackwardAttributes {
  double probability = 0.5;

  void fields(FieldVisitor& v) { v.field("probability", probability); }
};

/// A kept element scaled, a dropped one 0. A product and a choice rather than a branch: the mask cannot be predicted.
template <class T>
struct Drop {
  T scale;  ///< nothing is kept at probability 1

  explicit Drop(const DropoutBackwardAttributes& a) : scale(static_cast<T>(a.probability < 1 ? 1 / (1 - a.probability) : 0)) {}
  FRIT_HOST_DEVICE T operator()(T x, std::uint8_t keep) const {
    const T kept = x * scale;
    return keep != 0 ? kept : T(0);
  }
};

}  // namespace frit::ops
