#pragma once

#include <optional>

#include "frit/core/fields.h"
#include "frit/ops/elementwise/activation_functors.h"

namespace frit::ops {

struct ScaleInstanceNormClampScaleMaxAttributes {
  double eps = 1e-5;
  std::optional<double> min = {}, max = {};
  bool keep_dims = false;

  void fields(FieldVisitor& v) {
    v.field("eps", eps);
    v.field("min", min);
    v.field("max", max);
    v.field("keep_dims", keep_dims);
  }
  ClampAttributes clamp() const { return {min, max}; }
};

/// One channel of one sample: the factors before and after, the statistics of input * scale between them. The first product is not rounded to T, which
/// would cost data far from zero their digits.
template <class T>
struct ScaledInstance {
  T scale, post_scale;
  double mean, rstd;

  FRIT_HOST_DEVICE double scaled(T x) const { return static_cast<double>(x) * static_cast<double>(scale); }
  FRIT_HOST_DEVICE double centered(T x) const { return scaled(x) - mean; }
  FRIT_HOST_DEVICE T normalized(T x) const { return static_cast<T>(centered(x) * rstd); }
};

}  // namespace frit::ops
