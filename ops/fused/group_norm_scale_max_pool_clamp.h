#pragma once

#include <optional>

#include "frit/core/fields.h"
#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/pool/pool.h"

namespace frit::ops {

struct GroupNormScaleMaxPoolClampAttributes {
  std::int64_t num_groups = 1;
  double eps = 1e-5;
  Dims kernel_size = {}, stride = {}, padding = {}, dilation = {};  ///< as in PoolOptions
  bool ceil_mode = false;
  std::optional<double> min = {}, max = {};

  void fields(FieldVisitor& v) {
    v.field("num_groups", num_groups);
    v.field("eps", eps);
    v.field("kernel_size", kernel_size);
    v.field("stride", stride);
    v.field("padding", padding);
    v.field("dilation", dilation);
    v.field("ceil_mode", ceil_mode);
    v.field("min", min);
    v.field("max", max);
  }
  PoolOptions pool() const {
    return {.kernel_size = kernel_size, .stride = stride, .padding = padding, .dilation = dilation, .ceil_mode = ceil_mode};
  }
  ClampAttributes clamp() const { return {min, max}; }
};

/// One channel of one sample: the norm with its weight and bias as (x - mean) * slope + shift, and the factor behind it.
template <class T>
struct ScaledGroupChannel {
  double mean, slope, shift;
  T scale;

  FRIT_HOST_DEVICE double centered(T x) const { return static_cast<double>(x) - mean; }
  FRIT_HOST_DEVICE T normalized(T x) const { return static_cast<T>(centered(x) * slope + shift); }
  FRIT_HOST_DEVICE T result(T x) const { return normalized(x) * scale; }
};

}  // namespace frit::ops
