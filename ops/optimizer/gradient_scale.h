#pragma once

#include <limits>
#include <optional>

#include "frit/core/fields.h"

namespace frit::ops {

// What makes a norm into the number that gradients are multiplied by.

struct ClipAttributes {
  double max_norm = 1;
  void fields(FieldVisitor& v) { v.field("max_norm", max_norm); }
};

/// What gradients of this norm are multiplied by, so that it does not pass max_norm.
template <class T>
struct ClipScale {
  T max_norm;

  FRIT_HOST_DEVICE T operator()(T norm) const {
    const T scale = max_norm / (norm + static_cast<T>(1e-6));
    return scale > 1 ? T{1} : scale;  // NaN stays
  }
};

struct GuardAttributes {
  std::optional<double> max_norm = {};
  void fields(FieldVisitor& v) { v.field("max_norm", max_norm); }
};

/// What gradients of a norm are multiplied by: -1 from the first time on that it or the loss is not finite.
template <class T>
struct Guard {
  using Attributes = GuardAttributes;

  bool clips;
  ClipScale<T> clip;

  explicit Guard(const GuardAttributes& attributes)
      : clips(attributes.max_norm.has_value()), clip{static_cast<T>(attributes.max_norm.value_or(0))} {}

  FRIT_HOST_DEVICE static bool finite(T value) {
    constexpr T most = std::numeric_limits<T>::max();
    return value <= most && value >= -most;
  }

  FRIT_HOST_DEVICE T operator()(T norm, T loss, std::int64_t& failures) const {
    if (failures != 0 || !finite(norm) || !finite(loss)) {
      ++failures;
      return -1;
    }
    return clips ? clip(norm) : T{1};
  }
};

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
  using Attributes = LossScaleAttributes;
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
