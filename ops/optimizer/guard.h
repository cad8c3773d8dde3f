#pragma once

#include <limits>
#include <optional>

#include "frit/ops/optimizer/clip_scale.h"

namespace frit::ops {

struct GuardAttributes {
  std::optional<double> max_norm = {};
  void fields(FieldVisitor& v) { v.field("max_norm", max_norm); }
};

/// What gradients of a norm are multiplied by: -1 from the first time on that it or the loss is not finite.
template <class T>
struct Guard {
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

}  // namespace frit::ops
