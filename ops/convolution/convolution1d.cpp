#include "frit/ops/convolution/convolution.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {
namespace {

using Convolution = Value (*)(Value, Value, Value, const ConvolutionOptions&);

Value convolution1d(const char* name, Convolution convolution2d, Value input, Value weight, Value bias, ConvolutionOptions o) {
  o.stride = ops::after_unit(o.stride, 1, name, "stride");
  o.padding = ops::after_unit(o.padding, 0, name, "padding");
  o.dilation = ops::after_unit(o.dilation, 1, name, "dilation");
  o.output_padding = ops::after_unit(o.output_padding, 0, name, "output_padding");
  return ops::without_unit_axis(convolution2d(ops::with_unit_axis(input, name), ops::with_unit_axis(weight, name, "a weight"), bias, o));
}

}  // namespace

Value conv1d(Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return convolution1d("conv1d", conv2d, input, weight, bias, options);
}

Value conv_transpose1d(Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return convolution1d("conv_transpose1d", conv_transpose2d, input, weight, bias, options);
}

}  // namespace frit
