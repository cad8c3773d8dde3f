#pragma once

#include <optional>

#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

// max over channels of clamp(instance_norm(input * scale)) * post_scale: what follows a convolution. The forward operator gives
//   output (N, ...)
//   argmax, likewise: the channel of each maximum, u8 or i32
//   mean, rstd (N, C), f64, of input * scale
//   argmax_input, like the output: the input's element that each maximum was made of
// and the backward operator takes the last four: the gradient that enters the norm is that of the argmax alone.

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

/// The forward operator's results, given the number of `input`, after which the two scales come. Refuses what does not fit.
std::vector<TensorType> scale_instance_norm_clamp_scale_max_types(const InferContext& call, std::size_t input);

}  // namespace frit::ops
