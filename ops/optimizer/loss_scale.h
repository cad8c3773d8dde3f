#pragma once

#include <limits>
#include <optional>

#include "frit/ops/optimizer/clip_scale.h"

namespace frit::ops {

struct LossScaleAttributes {
  std::optional<double> max_norm = {};
  std::int64_t growth_interval = 2000;

  void fields(FieldVisitor& v) {
    v.field("max_norm", max_norm);
    v.field("growth_interval", growth_interval);
  }
};

/// One step of a dynamic loss scale: changes it, and gives what the gradients, which were multiplied by it, are to be multiplied by.
template <class T>
struct LossScaleStep {
  /// A loss that is NaN whatever the scale, or gradients of zero, must not drive the scale or its inverse out of the numbers.
  static constexpr T least = static_cast<T>(0x1p-24), most = static_cast<T>(0x1p40);

  bool clips;
  ClipScale<T> clip;
  std::int64_t growth_interval;

  explicit LossScaleStep(const LossScaleAttributes& attributes)
      : clips(attributes.max_norm.has_value()),
        clip{static_cast<T>(attributes.max_norm.value_or(0))},
        growth_interval(attributes.growth_interval) {}

  FRIT_HOST_DEVICE T operator()(T norm, T& scale, std::int64_t& good_steps) const {
    const T inverse = 1 / scale;
    if (!(norm <= std::numeric_limits<T>::max())) {
      scale = scale / 2 < least ? least : scale / 2;
      good_steps = 0;
      return -1;
    }
    if (++good_steps >= growth_interval) {
      scale = scale * 2 > most ? most : scale * 2;
      good_steps = 0;
    }
    return clips ? clip(norm * inverse) * inverse : inverse;
  }
};

}  // namespace frit::ops
