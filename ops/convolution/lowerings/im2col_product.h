#pragma once

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {

/// A convolution of size 1 after im2col, in operators: what it reads, in the weight's dtype, and what it gives.
struct Im2colProduct {
  Value taps, convolved;

  /// The bias may be none, and float32 with halves.
  Im2colProduct(Value image, Value weight, Value bias, Im2colAttributes attributes) {
    if (image.dtype() != weight.dtype()) attributes.dtype = weight.dtype();
    taps = im2col(image, attributes);
    if (bias) bias = cast(bias, weight.dtype());
    convolved = convolution(taps, weight, {}, bias);
  }

  Value weight_gradient(Value gradient) const { return ops::weight_gradient(gradient, taps, {}, Dims::filled(taps.rank() - 2, 1)); }
  /// Of the image that it was made of.
  Value image_gradient(Value gradient, Value image, Value weight, const Im2colAttributes& im2col) const {
    const Value of_taps = data_gradient(gradient, weight, {}, image_of(taps.shape()));
    const Im2colBackwardAttributes attributes{im2col, image.dim(1), image_of(image.shape())};
    return cast(emit_one("im2col_backward", {of_taps}, attributes), image.dtype());
  }
};

}  // namespace frit::ops
