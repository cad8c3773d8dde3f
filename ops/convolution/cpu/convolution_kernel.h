#pragma once

#include "frit/ops/convolution/cpu/convolution_cpu.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// The geometry of a call on an image and a weight of these shapes.
using GeometryRule = std::function<ConvolutionGeometry(const Shape& image, const Shape& weight, const Attributes&)>;

/// The CPU's kernel of an operator whose inputs are an image, a weight and maybe a bias: what a convolution gives or, if `back`, its data
/// gradient, also with a program that follows.
Kernel convolution_kernel(GeometryRule geometry, bool back);

}  // namespace frit::ops
