#include "frit/ops/convolution/averaged_convolution.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/cpu/convolution_kernel.h"
#include "frit/ops/convolution/lowerings/convolution_lowerings.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {
namespace {

Value emit_transposed(int image_rank, Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return emit_one(convolution_name("conv_transpose", image_rank), {input, weight, bias}, canonical(options, image_rank));
}

// An output_padding of the stride or more, which a dilation may allow, gives the convolution of the output positions that belong to no
// element of the input.

/// Without those positions.
Value crop(Value x, const Dims& image) {
  for (int axis = 0; axis < image.rank(); ++axis) {
    if (x.dim(axis + 2) != image[axis]) x = slice(x, axis + 2, 0, image[axis]);
  }
  return x;
}

/// With zeros there.
Value fill_up(Value x, const ConvolutionOptions& options) {
  const Dims none = Dims::filled(x.rank(), 0);
  Dims after = none;
  for (int axis = 0; axis < x.rank() - 2; ++axis) after[axis + 2] = options.output_padding[axis] / options.stride[axis];
  return after == none ? x : pad(x, none, after);
}

/// It is the data gradient of a convolution, so that convolution gives its own.
Values transposed_gradient(const GradientContext& c) {
  const Value input = c.inputs[0], weight = c.inputs[1], gradient = c.gradients[0];
  const ConvolutionOptions options = canonical(c.as<ConvolutionOptions>(), input.rank() - 2);
  Values result(c.inputs.size());
  if (c.wanted[0]) result[0] = crop(convolution(gradient, weight, options), image_of(input.shape()));
  if (c.wanted[1]) result[1] = weight_gradient(fill_up(input, options), gradient, options, image_of(weight.shape()));
  if (c.inputs.size() > 2 && c.wanted[2]) result[2] = bias_gradient(gradient);
  return result;
}

/// Libraries add the bias to a data gradient in another pass over it, if they do not leave that to frit.
Values bias_apart(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes& attributes) {
  if (inputs.size() < 3) return {};
  Shape channels = Shape::filled(inputs[0].rank() - 1, 1);
  channels[0] = outputs[0].dim(1);
  const std::string name = convolution_name("conv_transpose", outputs[0].rank() - 2);
  return {emit_one(name, {inputs[0], inputs[1]}, attributes) + reshape(inputs[2], channels)};
}

std::vector<Sample> samples(int image_rank) {
  if (image_rank == 2) {
    return {{{Shape{2, 3, 4, 5}, Shape{3, 4, 3, 2}, Shape{4}}},
            {{Shape{2, 4, 3, 4}, Shape{4, 3, 3, 3}, Shape{6}},
             ConvolutionOptions{.stride = {2}, .padding = {1}, .output_padding = {1, 0}, .groups = 2}},
            {{Shape{1, 2, 3, 2}, Shape{2, 3, 2, 2}}, ConvolutionOptions{.stride = {3}, .output_padding = {2}}},
            {{Shape{1, 2, 3, 3}, Shape{2, 2, 3, 3}, Shape{2}},
             ConvolutionOptions{.stride = {2, 1}, .padding = {2, 1}, .output_padding = {2, 1}, .dilation = {3, 2}}},
            {{Shape{1, 4, 3, 4}, Shape{4, 1, 3, 4}, Shape{4}}, ConvolutionOptions{.stride = {2}, .padding = {1}, .groups = 4}},
            {{Shape{1, 1, 1, 1}, Shape{1, 1, 1, 1}, Shape{1}}},
            {{Shape{3, 4, 2, 5}, Shape{4, 8, 1, 1}, Shape{8}}},
            {{Shape{2, 4, 3, 2}, Shape{4, 8, 1, 1}}, ConvolutionOptions{.output_padding = {1}, .dilation = {2}}},
            {{Shape{0, 2, 3, 3}, Shape{2, 3, 3, 3}, Shape{3}}, ConvolutionOptions{.stride = {2}}}};
  }
  return {{{Shape{2, 2, 2, 3, 3}, Shape{2, 3, 3, 2, 2}, Shape{3}}},
          {{Shape{1, 3, 2, 3, 2}, Shape{3, 2, 3, 3, 3}, Shape{2}},
           ConvolutionOptions{.stride = {2}, .padding = {1}, .output_padding = {1, 0, 1}}},
          {{Shape{1, 2, 2, 2, 3}, Shape{2, 1, 2, 3, 1}}, ConvolutionOptions{.stride = {3, 1, 2}, .dilation = {1, 2, 1}, .groups = 2}},
          {{Shape{1, 1, 1, 1, 1}, Shape{1, 2, 1, 1, 1}, Shape{2}}},
          {{Shape{0, 2, 2, 2, 2}, Shape{2, 3, 3, 3, 3}, Shape{3}}}};
}

}  // namespace
}  // namespace ops

Value conv_transpose2d(Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return ops::emit_transposed(2, input, weight, bias, options);
}

Value conv_transpose3d(Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return ops::emit_transposed(3, input, weight, bias, options);
}

}  // namespace frit

FRIT_OPERATORS(conv_transpose) {
  for (const int image_rank : {2, 3}) {
    registry.add<ConvolutionOptions>({
        .name = convolution_name("conv_transpose", image_rank),
        .summary = "output[n, k, i stride - padding + t dilation] is bias[k] and the sum over c, i, t of weight[c, k, t] input[n, c, i]",
        .inputs = {"input", "weight", {"bias", true}},
        .infer = [image_rank](const InferContext& call) { return infer_transposed(call, image_rank); },
        .gradient = transposed_gradient,
        .fold_channel_affine =
            [](std::span<const Value> inputs, const Attributes& attributes, const ChannelAffine& affine) {
              return fold_into_weight(inputs, affine, 1, attributes.as<ConvolutionOptions>().groups);
            },
        .pointwise = bias_apart,
        .lowerings = {single_pixels("single pixels"), results_in_blocks("results in blocks"), subpixel_lowering("sub-pixel")},
        .average = average_of_transposed,
        .staged_output = true,
        .samples_in = samples_of_input_0,
        .precision = Precision::half,
        .cpu = convolution_kernel([](const Shape& image, const Shape& weight,
                                     const Attributes& a) { return transposed_geometry(image, weight, a.as<ConvolutionOptions>()); },
                                  /*back=*/true),
        .linear_inputs = {{2, LinearInput::addend, 1}},
        .samples = [image_rank] { return samples(image_rank); },
        .multiplications = [](const InferContext& call, const TensorType&) { return multiplications_of(call.inputs[0], call.inputs[1]); },
    });
  }
}
