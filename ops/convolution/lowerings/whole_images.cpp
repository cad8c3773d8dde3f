// Convolutions whose kernel is as large as the image, so that there is one result of each sample, and transposed ones of single pixels, as
// products of matrices: of samples by an image's elements, channels innermost as they lie.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/lowerings/convolution_lowerings.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/shape/image_axes.h"

namespace frit::ops {
namespace {

/// A batch of images, or weights, as a matrix with a row of each.
Value as_rows(Value x) {
  Shape one = x.shape();
  one[0] = 1;
  return reshape(channels_innermost(x), {x.dim(0), element_count(one)});
}

/// Whether only the sizes of the images matter.
bool is_plain(const ConvolutionOptions& options) {
  return options.groups == 1 && all_equal(options.padding, 0) && all_equal(options.output_padding, 0) && all_equal(options.dilation, 1);
}

Values product_of_images(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), input.rank() - 2);
  if (!is_plain(options) || image_of(input) != image_of(weight) || all_equal(image_of(input), 1)) return {};
  const Value product = linear(as_rows(cast(inputs[0], inputs[1].dtype())), as_rows(inputs[1]), bias_or_none(inputs));
  Shape result = Shape::filled(input.rank(), 1);
  result[0] = input[0], result[1] = weight[0];
  return {reshape(product, result)};
}

Values product_of_pixels(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), input.rank() - 2);
  if (!is_plain(options) || !all_equal(image_of(input), 1) || all_equal(image_of(weight), 1)) return {};
  Shape result = channels_innermost(inputs[1]).shape();
  result[0] = input[0];
  const Value image = channels_second(reshape(matmul(as_rows(cast(inputs[0], inputs[1].dtype())), as_rows(inputs[1])), result));
  return {inputs.size() > 2 ? image + along_channels(inputs[2], input.rank()) : image};
}

}  // namespace

Lowering whole_images(const char* name) {
  return {.name = name, .rule = product_of_images, .likely_fastest = [](std::span<const TensorType>) { return true; }};
}

Lowering single_pixels(const char* name) {
  return {.name = name, .rule = product_of_pixels, .likely_fastest = [](std::span<const TensorType>) { return true; }};
}

}  // namespace frit::ops
