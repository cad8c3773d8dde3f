#pragma once

#include "frit/core/fields.h"

namespace frit::ops {

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

}  // namespace frit::ops
